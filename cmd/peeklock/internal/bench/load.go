package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// counters are what all clients of a run have done. Each is written by many goroutines;
// the few that run at once on a client machine make that cheaper than adding up.
type counters struct {
	confirmed, sendRefused, sendUnknown          atomic.Uint64
	received, settled, settleLost, settleUnknown atomic.Uint64
	redelivered, duplicated, unexpected, foreign atomic.Uint64
	reconnects                                   atomic.Uint64
	accepted, misordered                         atomic.Uint64 // of sessions
	lastConfirm, lastReceive, lastSettle         atomic.Int64  // nanoseconds since 1970
}

// load is one run of a benchmark.
type load struct {
	options   *benchOptions
	client    *cli.Client
	addresses []string
	ledger    *deliveryLedger
	counts    counters
	measuring atomic.Bool
	senders   []*sender
	receivers []*receiver
	attached  sync.WaitGroup // clients that are not connected yet
	begin     chan struct{}  // closed: all are connected, or were waited for
	stop      chan struct{}  // closed: no new sends
	failure   atomic.Pointer[error]
}

func newLoad(c *cli.Client, o *benchOptions, addresses []string) *load {
	var run [8]byte
	_, _ = rand.Read(run[:])
	l := &load{options: o, client: c, addresses: addresses, begin: make(chan struct{}), stop: make(chan struct{})}
	if !o.spread {
		l.addresses = addresses[:1:1]
	}
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

// fail ends the run early: a client cannot do its work, and trying again will not help.
func (l *load) fail(err error) { l.failure.CompareAndSwap(nil, &err) }

// run generates the load, measures, waits for pending work and returns the result.
func (l *load) run(ctx context.Context) (benchResult, error) {
	// The clients live longer than ctx: after Ctrl-C, what is under way is still counted.
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

// phases are warm-up, measuring, and the wait for the rest. It returns what was counted at the
// beginning and at the end of measuring.
func (l *load) phases(ctx context.Context, sent <-chan struct{}) (first, second progressMark, err error) {
	// Connecting is not measured.
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
	l.drain(ctx, sent)
	if !timed {
		second = l.mark()
	}
	if f := l.failure.Load(); f != nil {
		err = *f
	}
	return first, second, err
}

// progressEvery is how often a run looks at itself.
const progressEvery = 50 * time.Millisecond

// wait returns when the time is up, the work is done, or there is a reason to stop.
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
			// Receiving alone ends with the number asked for or when nothing comes.
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

// drain waits until everything sent is confirmed, received and settled, or until nothing
// moves any more for longer than a lock lasts.
func (l *load) drain(ctx context.Context, sent <-chan struct{}) {
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
	for l.failure.Load() == nil && ctx.Err() == nil {
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

// caughtUp reports that no work is pending: all senders have ended already.
func (l *load) caughtUp() bool {
	switch l.options.mode {
	case modeSend:
		return true
	case modeReceive:
		return l.settling() == 0
	}
	return l.settling() == 0 && l.ledger.lost() == 0
}

// settling is how many settlements are under way.
func (l *load) settling() int64 {
	var n int64
	for _, r := range l.receivers {
		n += r.settling.Load()
	}
	return n
}

// progressMark has the counts at a moment.
type progressMark struct {
	at                           time.Time
	confirmed, received, settled uint64
	servers, own                 cpuTime
}

func (l *load) mark() progressMark {
	return progressMark{
		at:        time.Now(),
		confirmed: l.counts.confirmed.Load(), received: l.counts.received.Load(), settled: l.counts.settled.Load(),
		servers: cpuOf(l.options.pids...), own: cpuOfSelf(),
	}
}

// Latencies are in microseconds, to three digits, up to ten minutes.
const (
	latencyMaxMicros = 10 * 60 * 1_000_000
	latencyDigits    = 3
)

// latencies is a histogram for several goroutines.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, latencyMaxMicros, latencyDigits)}
}

func (l *latencies) add(nanos int64) {
	micros := min(max(nanos/1000, 1), latencyMaxMicros)
	l.mu.Lock()
	_ = l.h.RecordValue(micros) // within its limits
	l.mu.Unlock()
}

// backoff is how long a client waits before it connects again.
const (
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second
)

// backOff waits and returns the next, longer wait; false when the work has ended.
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
