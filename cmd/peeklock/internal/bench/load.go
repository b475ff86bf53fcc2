package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
)

// counters count the work of all clients of a run. Many goroutines write each counter. Because few of them run at
// the same time on a client machine, shared counters cost less than adding up one counter per goroutine.
type counters struct {
	confirmed, sendRefused, sendUnknown          atomic.Uint64
	received, settled, settleLost, settleUnknown atomic.Uint64
	redelivered, duplicated, unexpected, foreign atomic.Uint64
	reconnects                                   atomic.Uint64
	accepted, misordered                         atomic.Uint64 // of runs with sessions
	lastConfirm, lastReceive, lastSettle         atomic.Int64  // nanoseconds since 1970
}

// load is one run of a benchmark.
type load struct {
	options   *benchOptions
	client    *client.Client
	targets   *targets
	ledger    *deliveryLedger
	counts    counters
	measuring atomic.Bool
	senders   []*sender
	receivers []*receiver
	attached  sync.WaitGroup // clients that are not yet connected
	begin     chan struct{}  // closed when all clients are connected, or the wait for them has ended
	stop      chan struct{}  // closed when sending is to stop
	failure   atomic.Pointer[error]
}

func newLoad(c *client.Client, o *benchOptions, addresses []string) *load {
	var run [8]byte
	_, _ = rand.Read(run[:])
	l := &load{options: o, client: c, begin: make(chan struct{}), stop: make(chan struct{})}
	l.targets = &targets{ask: func(ctx context.Context) ([]string, error) { return gateway.Reachable(ctx, c) }, spread: o.spread, list: addresses, asked: time.Now()}
	if o.sends() {
		for i := range o.senders {
			l.senders = append(l.senders, newSender(l, i))
		}
	}
	if o.receives() {
		for i := range o.receivers {
			l.receivers = append(l.receivers, newReceiver(l, i))
		}
	}
	o.perSession.prepare(len(l.senders))
	l.attached.Add(len(l.senders) + len(l.receivers))
	l.ledger = newDeliveryLedger(binary.BigEndian.Uint64(run[:]), len(l.senders), o.topic.copies(), o.mode == modeReceive)
	return l
}

// fail ends the run early, because a client cannot do its work and a retry would not help.
func (l *load) fail(err error) { l.failure.CompareAndSwap(nil, &err) }

// run generates the load, measures, waits for pending work and returns the result.
func (l *load) run(ctx context.Context) (benchResult, error) {
	// The clients outlive ctx, so that after Ctrl-C the messages in flight are still counted.
	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	var receiving, sending sync.WaitGroup
	for _, r := range l.receivers {
		receiving.Go(func() { r.run(work) })
	}
	for _, s := range l.senders {
		sending.Go(func() { s.run(work) })
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		sending.Wait()
	}()
	painter := l.showProgress()
	first, second, err := l.phases(ctx, sent)
	painter()
	endWork()
	<-sent
	receiving.Wait()
	if err != nil {
		return benchResult{}, err
	}
	return l.result(first, second), nil
}

// phases runs the warm-up, the measurement and the wait for pending work. It returns the counts at the beginning
// and at the end of the measurement.
func (l *load) phases(ctx context.Context, sent <-chan struct{}) (first, second progressMark, err error) {
	// The time to connect is not measured.
	attached := make(chan struct{})
	go func() {
		defer close(attached)
		l.attached.Wait()
	}()
	l.wait(ctx, benchConnectMax, attached)
	close(l.begin)
	if l.options.warmup > 0 {
		l.wait(ctx, l.options.warmup, nil)
	}
	first = l.mark()
	l.measuring.Store(true)
	finished := sent
	if !l.options.sends() {
		finished = nil
	}
	l.wait(ctx, l.options.duration, finished)
	timed := l.options.messages == 0
	if timed {
		second = l.mark()
		l.measuring.Store(false)
	}
	close(l.stop)
	l.drain(sent)
	if !timed {
		second = l.mark()
	}
	if f := l.failure.Load(); f != nil {
		err = *f
	}
	return first, second, err
}

// progressEvery is the interval at which a run checks its progress.
const progressEvery = 50 * time.Millisecond

// wait returns when the time limit is reached, the work is done, or the run has to stop.
func (l *load) wait(ctx context.Context, limit time.Duration, finished <-chan struct{}) {
	timer, poll := time.NewTimer(limit), time.NewTicker(progressEvery)
	defer timer.Stop()
	defer poll.Stop()
	last, since := l.counts.received.Load(), time.Now()
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-finished:
			return
		case now := <-poll.C:
			if l.failure.Load() != nil {
				return
			}
			if l.options.mode != modeReceive {
				continue
			}
			// A run that only receives ends at the requested number, or when no message arrives.
			got := l.counts.received.Load()
			if got != last {
				last, since = got, now
			}
			if l.options.messages > 0 && got >= l.options.messages || now.Sub(since) > benchEmptyMax {
				return
			}
		}
	}
}

// drain waits until everything sent is confirmed, received and settled, or until there was no progress for longer
// than a lock lasts. An interrupted run drains, too: what is on its way is not lost.
func (l *load) drain(sent <-chan struct{}) {
	poll := time.NewTicker(progressEvery)
	defer poll.Stop()
	idleMax := benchIdleMax
	if l.options.receives() {
		idleMax += l.options.lockDuration
	}
	progress := func() uint64 {
		c := &l.counts
		return c.confirmed.Load() + c.sendUnknown.Load() + c.received.Load() + c.settled.Load() + c.reconnects.Load()
	}
	last, since := progress(), time.Now()
	for l.failure.Load() == nil {
		select {
		case <-sent:
			if l.caughtUp() {
				return
			}
		default:
		}
		now := <-poll.C
		if p := progress(); p != last {
			last, since = p, now
		} else if now.Sub(since) > idleMax {
			return
		}
	}
}

// caughtUp reports whether no work is pending. All senders must have ended before.
func (l *load) caughtUp() bool {
	switch l.options.mode {
	case modeSend:
		return true
	case modeReceive:
		return l.settling() == 0
	}
	return l.settling() == 0 && l.ledger.lost() == 0
}

// settling returns the number of settlements in flight.
func (l *load) settling() int64 {
	var n int64
	for _, r := range l.receivers {
		n += r.settling.Load()
	}
	return n
}

func (l *load) mark() progressMark {
	return progressMark{
		at:        time.Now(),
		confirmed: l.counts.confirmed.Load(), received: l.counts.received.Load(), settled: l.counts.settled.Load(),
		servers: cpuOf(l.options.pids...), own: cpuOfSelf(),
	}
}

// Times that a client waits before it reconnects.
const (
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
)

// backOff waits and returns the next, longer wait time; false if the work has ended.
func backOff(ctx context.Context, d time.Duration) (time.Duration, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return min(2*d, backoffMax), true
	case <-ctx.Done():
		return d, false
	}
}
