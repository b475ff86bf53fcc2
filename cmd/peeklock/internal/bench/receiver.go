package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
)

// receiver is one receiving client. Each worker receives a message, checks it and settles it, so a message is
// never handed to another of our goroutines. There are as many settlements in flight as there are workers: go-amqp
// settles one message at a time per caller and offers no ranges.
type receiver struct {
	load      *load
	index     int
	queue     string
	copyIndex int // index of the copy that this receiver gets
	arrivals  *latencies
	attached  func() // called when the first connection is open
	settling  atomic.Int64
}

func newReceiver(l *load, index int) *receiver {
	source, copyIndex := l.options.source(index)
	return &receiver{load: l, index: index, queue: source, copyIndex: copyIndex, arrivals: newLatencies(), attached: sync.OnceFunc(l.attached.Done)}
}

// run receives until the work has ended, over as many connections as necessary.
func (r *receiver) run(ctx context.Context) {
	defer r.attached()
	wait := backoffMin
	for at := r.index; ctx.Err() == nil; at++ {
		before := r.load.counts.received.Load()
		err := r.connection(ctx, r.load.targets.at(at))
		if ctx.Err() != nil {
			return
		}
		if isPermanent(err) {
			r.load.fail(fmt.Errorf("receive from %s: %w", r.queue, gateway.PlainError(err)))
			return
		}
		r.load.counts.reconnects.Add(1)
		r.load.targets.failed(ctx)
		if r.load.counts.received.Load() > before {
			wait = backoffMin
		}
		wait, _ = backOff(ctx, wait)
	}
}

func (r *receiver) connection(ctx context.Context, address string) error {
	d, err := gateway.DialOne(ctx, r.load.client, address)
	if err != nil {
		return err
	}
	defer d.Close()
	o := r.load.options
	if o.perSession.sessions > 0 {
		return r.sessions(ctx, d)
	}
	link, err := d.Receiver(ctx, r.queue, int32(o.credit), o.receiveAndDelete)
	if err != nil {
		return err
	}
	r.attached()
	// The first worker that finds the link closed ends the others.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range min(o.settlers, o.credit) {
		workers.Go(func() { cancel(r.work(ctx, link)) })
	}
	workers.Wait()
	return context.Cause(ctx)
}

// work runs one worker; it returns why the link cannot be used any longer.
func (r *receiver) work(ctx context.Context, link *amqp.Receiver) error {
	receiveAndDelete := r.load.options.receiveAndDelete
	for {
		message, err := link.Receive(ctx, nil)
		if err != nil {
			return err
		}
		t, counter := r.countArrival(message)
		if receiveAndDelete {
			r.load.counts.settled.Add(1)
			continue
		}
		r.settling.Add(1)
		err = link.AcceptMessage(ctx, message)
		r.settling.Add(-1)
		if err := r.countSettlement(err, t, counter); err != nil {
			return err
		}
	}
}

// countArrival checks a message and counts it. The state is nil if the message does not belong to this run.
func (r *receiver) countArrival(message *amqp.Message) (*copyState, uint64) {
	c := &r.load.counts
	now := time.Now().UnixNano()
	var s messageHeader
	ok := false
	if len(message.Data) == 1 {
		s, ok = readHeader(message.Data[0])
	}
	c.received.Add(1)
	c.lastReceive.Store(now)
	if !ok {
		c.foreign.Add(1)
		return nil, 0
	}
	judged, t := r.load.ledger.recordDelivery(s, r.copyIndex, r.load.options.receiveAndDelete)
	switch judged {
	case firstDelivery:
		if r.load.measuring.Load() {
			r.arrivals.add(now - s.sent)
		}
		if !r.load.options.perSession.ordered(s) {
			c.misordered.Add(1)
		}
	case redelivered:
		c.redelivered.Add(1)
	case duplicated:
		c.duplicated.Add(1)
	case unexpected:
		c.unexpected.Add(1)
	case foreign:
		c.foreign.Add(1)
	}
	return t, s.counter
}

// countSettlement counts the outcome of a settlement; an error ends the worker.
func (r *receiver) countSettlement(err error, t *copyState, counter uint64) error {
	c := &r.load.counts
	switch {
	case err == nil:
		if t != nil {
			t.settled.set(counter)
		}
		c.settled.Add(1)
		c.lastSettle.Store(time.Now().UnixNano())
		return nil
	case gateway.IsRefused(err):
		c.settleLost.Add(1) // the lock had expired: the message will be delivered again
		return nil
	}
	c.settleUnknown.Add(1)
	return err
}

// sessions receives from one session after another over a connection.
func (r *receiver) sessions(ctx context.Context, d *gateway.Session) error {
	r.attached()
	for {
		link, err := d.AcceptSession(ctx, r.queue, -1, false, nil, benchAcceptMax)
		switch {
		case errors.Is(err, gateway.ErrNoMessage):
			continue
		case err != nil:
			return err
		}
		r.load.counts.accepted.Add(1)
		if err := r.drainSession(ctx, link); err != nil {
			return fmt.Errorf("session %s: %w", gateway.SessionOf(link), err)
		}
		if err := link.Close(ctx); err != nil {
			return err
		}
	}
}

// drainSession receives the messages of a session, up to the credit.
func (r *receiver) drainSession(ctx context.Context, link *amqp.Receiver) error {
	if err := link.IssueCredit(uint32(r.load.options.credit)); err != nil {
		return err
	}
	// A session is accepted because it has a message, unless that expires now. Drain only after the first message
	// has arrived, because go-amqp may send the drain before the credit.
	first, err := gateway.Next(ctx, link, benchAcceptMax)
	switch {
	case errors.Is(err, gateway.ErrNoMessage):
		return nil
	case err != nil:
		return err
	}
	if err := link.DrainCredit(ctx, nil); err != nil {
		return err
	}
	return r.settleAll(ctx, link, first)
}

// settleAll checks the arrived messages in order and settles them, several at a time.
func (r *receiver) settleAll(ctx context.Context, link *amqp.Receiver, first *amqp.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, r.load.options.settlers)
	var settling sync.WaitGroup
	for message := first; message != nil; message = link.Prefetched() {
		t, counter := r.countArrival(message)
		r.settling.Add(1)
		slots <- struct{}{}
		settling.Go(func() {
			defer func() { <-slots }()
			err := link.AcceptMessage(ctx, message)
			r.settling.Add(-1)
			if err := r.countSettlement(err, t, counter); err != nil {
				cancel(err)
			}
		})
	}
	settling.Wait()
	return context.Cause(ctx)
}
