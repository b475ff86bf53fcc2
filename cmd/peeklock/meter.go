package main

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// meterEvery is how often a meter is painted.
const meterEvery = 100 * time.Millisecond

// meter shows on a terminal how far a long command has come. Elsewhere (a script, a
// pipe) it is silent: standard output holds results only.
type meter struct {
	tracker *progress.Tracker
	done    chan struct{}
}

// meter begins to paint, on standard error. total is how many things are to be done, as
// far as is known.
func (c *client) meter(what string, total int) *meter {
	m := &meter{tracker: &progress.Tracker{Message: what, Total: int64(max(1, total)), AutoStopDisabled: true}, done: make(chan struct{})}
	if !c.interactive {
		close(m.done)
		return m
	}
	w := progress.NewWriter()
	w.SetOutputWriter(c.err)
	w.SetUpdateFrequency(meterEvery)
	w.SetAutoStop(true)
	w.AppendTracker(m.tracker)
	go func() {
		defer close(m.done)
		w.Render()
	}()
	return m
}

// add says that n more are done.
func (m *meter) add(n int) { m.tracker.Increment(int64(n)) }

// end paints the last state and stops; failed shows that it was not all.
func (m *meter) end(failed bool) {
	if failed {
		m.tracker.MarkAsErrored()
	} else {
		m.tracker.MarkAsDone()
	}
	<-m.done // at most one painting away
}
