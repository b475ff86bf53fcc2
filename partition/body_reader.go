package partition

import (
	"context"
	"errors"
	"log/slog"
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
	d.logSlowRead(j, began)
}

// logSlowRead logs the time that a read of bodies waited, and the time of the read.
func (d *bodyReader) logSlowRead(j readJob, began time.Time) {
	if d.g.cfg.SlowLogger == nil || d.g.cfg.SlowAfter <= 0 || time.Since(j.queuedAt) < d.g.cfg.SlowAfter {
		return
	}
	d.g.cfg.SlowLogger.Warn("slow operation",
		slog.String("operation", "read bodies"), slog.Uint64("partition", uint64(d.g.cfg.ID)),
		slog.Duration("took", time.Since(j.queuedAt)), slog.Duration("queued", began.Sub(j.queuedAt)),
		slog.Int("messages", len(j.result.Deliveries)), slog.Int64("bytes", j.bytes))
}
