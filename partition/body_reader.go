package partition

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
)

// bodyReader reads the bodies of answers from disk, on a goroutine of its own beside apply.
type bodyReader struct {
	g     *Group
	wake  chan struct{}
	bytes atomic.Int64 // of bodies waiting to be read

	mu   sync.Mutex
	jobs []readJob
}

type readJob struct {
	result   fsm.Result
	bytes    int64
	queuedAt time.Time // zero when slow operations are not logged
	done     func(Answer)
}

func (d *bodyReader) init(g *Group) { d.g, d.wake = g, make(chan struct{}, 1) }

// backlog returns the number of bytes that wait to be read.
func (d *bodyReader) backlog() int64 { return d.bytes.Load() }

// push queues an answer whose segments are pinned. done may be nil.
func (d *bodyReader) push(r fsm.Result, done func(Answer)) {
	j := readJob{result: r, done: done, queuedAt: time.Now()}
	for i := range r.Deliveries {
		j.bytes += int64(r.Deliveries[i].Body.Size) + int64(r.Deliveries[i].Patch.Size)
	}
	d.bytes.Add(j.bytes)
	d.mu.Lock()
	d.jobs = append(d.jobs, j)
	d.mu.Unlock()
	notify(d.wake)
}

func (d *bodyReader) run(ctx context.Context) {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			d.failPending()
			return
		}
		d.mu.Lock()
		jobs := d.jobs
		d.jobs = nil
		d.mu.Unlock()
		for _, j := range jobs {
			d.read(j)
		}
		d.g.proposer.notify()
	}
}

// failPending answers the pending jobs with Unknown when the group closes.
func (d *bodyReader) failPending() {
	d.mu.Lock()
	jobs := d.jobs
	d.jobs = nil
	d.mu.Unlock()
	for _, j := range jobs {
		d.g.bodies.Unpin()
		d.bytes.Add(-j.bytes)
		if j.done != nil {
			j.done(Answer{Outcome: Unknown})
		}
	}
}

func (d *bodyReader) read(j readJob) {
	a := Answer{Outcome: Done, Result: j.result}
	began := time.Now()
	if j.done != nil {
		ds, err := d.g.bodies.ReadBodies(j.result.Deliveries)
		a.Result.Deliveries = ds
		if err != nil {
			a = Answer{Outcome: Unknown}
		}
		if err != nil && !errors.Is(err, bodystore.ErrUnwritten) {
			d.g.halt(err)
		}
	}
	d.g.bodies.Unpin()
	d.bytes.Add(-j.bytes)
	if j.done != nil {
		j.done(a)
	}
	d.g.logSlowRead(j, began)
}

// oversleepsPulse reports whether run would sleep beyond the time of the next pulse.
func (p *proposer) oversleepsPulse() bool {
	if p.g.nextDeadline() == (fsm.Times{}) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.oversleepsPulseLocked()
}

func (p *proposer) oversleepsPulseLocked() bool {
	if !p.leading || p.pulseInFlight || p.sleepUntil.IsZero() {
		return false
	}
	wait, ok := p.untilPulse()
	return ok && time.Now().Add(wait).Before(p.sleepUntil)
}
