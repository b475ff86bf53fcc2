package output

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// meterEvery is the time between two updates of a meter.
const meterEvery = 100 * time.Millisecond

// Meter shows the progress of a long command on a terminal. If the output is not a terminal (a script, a pipe), it
// prints nothing: standard output holds results only.
type Meter struct {
	tracker *progress.Tracker
	done    chan struct{}
}

// NewMeter starts a meter on standard error. total is the amount of work as far as it is known.
func NewMeter(p cli.Process, what string, total int) *Meter {
	m := &Meter{tracker: &progress.Tracker{Message: what, Total: int64(max(1, total)), AutoStopDisabled: true}, done: make(chan struct{})}
	m.paint(p)
	return m
}

func (m *Meter) paint(p cli.Process) {
	if !p.Interactive {
		close(m.done)
		return
	}
	w := progress.NewWriter()
	w.SetOutputWriter(p.Err)
	w.SetUpdateFrequency(meterEvery)
	w.SetAutoStop(true)
	w.AppendTracker(m.tracker)
	go func() {
		defer close(m.done)
		w.Render()
	}()
}

// NewBytesMeter returns a meter of bytes. set may change its total later.
func NewBytesMeter(p cli.Process, what string, total int64) *Meter {
	m := &Meter{tracker: &progress.Tracker{Message: what, Total: max(1, total), Units: progress.UnitsBytes, AutoStopDisabled: true}, done: make(chan struct{})}
	m.paint(p)
	return m
}

// Set sets the progress to done of total.
func (m *Meter) Set(done, total int64) {
	m.tracker.UpdateTotal(max(1, total))
	m.tracker.SetValue(min(done, max(1, total)))
}

// Say changes the text before the bar.
func (m *Meter) Say(text string) { m.tracker.UpdateMessage(text) }

// Add adds n to the progress.
func (m *Meter) Add(n int) { m.tracker.Increment(int64(n)) }

// End draws the last state and stops; failed marks the work as incomplete.
func (m *Meter) End(failed bool) {
	if failed {
		m.tracker.MarkAsErrored()
	} else {
		m.tracker.MarkAsDone()
	}
	<-m.done // the renderer draws at most once more
}
