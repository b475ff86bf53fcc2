package cli

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

// Meter begins to paint, on standard error. total is how many things are to be done, as
// far as is known.
func (c *Client) Meter(what string, total int) *meter {
	m := &meter{tracker: &progress.Tracker{Message: what, Total: int64(max(1, total)), AutoStopDisabled: true}, done: make(chan struct{})}
	c.paint(m)
	return m
}

func (c *Client) paint(m *meter) {
	if !c.Interactive {
		close(m.done)
		return
	}
	w := progress.NewWriter()
	w.SetOutputWriter(c.Err)
	w.SetUpdateFrequency(meterEvery)
	w.SetAutoStop(true)
	w.AppendTracker(m.tracker)
	go func() {
		defer close(m.done)
		w.Render()
	}()
}

// bytesMeter is a meter of bytes. Its total may be learnt later (set).
func (c *Client) bytesMeter(what string, total int64) *meter {
	m := &meter{tracker: &progress.Tracker{Message: what, Total: max(1, total), Units: progress.UnitsBytes, AutoStopDisabled: true}, done: make(chan struct{})}
	c.paint(m)
	return m
}

// set sets the progress: done of total.
func (m *meter) set(done, total int64) {
	m.tracker.UpdateTotal(max(1, total))
	m.tracker.SetValue(min(done, max(1, total)))
}

// say changes the text before the bar.
func (m *meter) say(text string) { m.tracker.UpdateMessage(text) }

// Add adds n to the progress.
func (m *meter) Add(n int) { m.tracker.Increment(int64(n)) }

// End paints the last state and stops; failed shows that it was not all.
func (m *meter) End(failed bool) {
	if failed {
		m.tracker.MarkAsErrored()
	} else {
		m.tracker.MarkAsDone()
	}
	<-m.done // at most one painting away
}
