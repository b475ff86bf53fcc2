package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/messages"
)

// sender is one sending client. It has two goroutines per connection: one sends, the other takes the confirmations
// in the order of sending. No other goroutine runs per message.
type sender struct {
	load     *load
	index    int
	queue    string
	next     uint64 // counter of the next message
	limit    uint64 // number of messages; 0: unlimited
	body     []byte
	message  *amqp.Message // reused: go-amqp has copied it when a send returns
	confirms *latencies
	attached func() // called when the first connection is open

	interval time.Duration // between two messages; 0: as fast as possible
	due      time.Time     // time of the next message
	timer    *time.Timer
}

func newSender(l *load, index int) *sender {
	o := l.options
	s := &sender{load: l, index: index, queue: o.target(index), body: make([]byte, o.size), confirms: newLatencies(), attached: sync.OnceFunc(l.attached.Done)}
	for i := range s.body {
		s.body[i] = messages.FillerAlphabet[i%len(messages.FillerAlphabet)]
	}
	s.message = &amqp.Message{Data: [][]byte{s.body}}
	o.topic.setProperties(s.message)
	if o.messages > 0 {
		s.limit = o.messages / uint64(o.senders)
		if uint64(index) < o.messages%uint64(o.senders) {
			s.limit++
		}
	}
	if o.rate > 0 {
		s.interval = time.Duration(float64(o.senders) / o.rate * float64(time.Second))
		s.timer = time.NewTimer(time.Hour)
	}
	return s
}

// run sends until it is stopped, over as many connections as necessary.
func (s *sender) run(ctx context.Context) {
	defer s.attached()
	if s.timer != nil {
		defer s.timer.Stop()
	}
	wait := backoffMin
	for at := s.index; !s.done(); at++ {
		before := s.next
		err := s.connection(ctx, s.load.targets.at(at))
		if err == nil || ctx.Err() != nil {
			return
		}
		if isPermanent(err) {
			s.load.fail(fmt.Errorf("send to %s: %w", s.queue, gateway.PlainError(err)))
			return
		}
		s.load.counts.reconnects.Add(1)
		s.load.targets.failed(ctx)
		if s.next > before {
			wait = backoffMin
		}
		var more bool
		if wait, more = backOff(ctx, wait); !more {
			return
		}
	}
}

// isPermanent reports whether a new connection would fail with the same error.
func isPermanent(err error) bool {
	var answer *amqp.Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Condition {
	case amqp.ErrCondNotFound, amqp.ErrCondUnauthorizedAccess, amqp.ErrCondNotAllowed, amqp.ErrCondMessageSizeExceeded:
		return true
	}
	return false
}

func (s *sender) done() bool {
	select {
	case <-s.load.stop:
		return true
	default:
		return s.limit > 0 && s.next >= s.limit || s.next >= countersMax
	}
}

// pendingSend is a message that awaits its confirmation.
type pendingSend struct {
	receipt amqp.SendReceipt
	counter uint64
	start   time.Time
}

// connection sends over one connection; it returns nil when there is nothing left to send.
func (s *sender) connection(ctx context.Context, address string) error {
	d, err := gateway.DialOne(ctx, s.load.client, address)
	if err != nil {
		return err
	}
	defer d.Close()
	link, err := d.Session.NewSender(ctx, s.queue, nil)
	if err != nil {
		return err
	}
	s.attached()
	select {
	case <-s.load.begin:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.due.IsZero() {
		// Spread the first sends over the interval, so that senders do not send at the same moment.
		s.due = time.Now().Add(s.interval * time.Duration(s.index) / time.Duration(s.load.options.senders))
	}
	window := s.load.options.window
	if window == 1 {
		return s.sendOneByOne(ctx, link)
	}
	// One message is being sent, the other goroutine awaits one, and the rest are in the channel. Together they
	// are the window.
	flights := make(chan pendingSend, window-2)
	confirmed := make(chan error, 1)
	go func() { confirmed <- s.confirm(ctx, flights) }()
	err = s.stream(ctx, link, flights)
	close(flights)
	return errors.Join(err, <-confirmed)
}

// stream sends without waiting for confirmations.
func (s *sender) stream(ctx context.Context, link *amqp.Sender, flights chan<- pendingSend) error {
	for !s.done() {
		f, err := s.sendNext(ctx, link)
		if err != nil {
			return err
		}
		if f.receipt.DeliveryTag() != nil {
			flights <- f
		}
	}
	return nil
}

// sendOneByOne waits for each confirmation before the next send. It does so in this goroutine, because the switch
// to another one would be a considerable part of the measured latency.
func (s *sender) sendOneByOne(ctx context.Context, link *amqp.Sender) error {
	for !s.done() {
		f, err := s.sendNext(ctx, link)
		if err != nil {
			return err
		}
		if f.receipt.DeliveryTag() == nil {
			return nil
		}
		if err := s.awaitConfirmation(ctx, &f); err != nil {
			return err
		}
	}
	return nil
}

// sendNext sends the next message. The result is empty if the run was stopped while sendNext waited.
func (s *sender) sendNext(ctx context.Context, link *amqp.Sender) (pendingSend, error) {
	start, more := s.waitUntilDue()
	if !more {
		return pendingSend{}, nil
	}
	counter := s.next
	s.next++
	t := s.load.ledger.tracks[s.index]
	t.attempted.Store(s.next)
	s.load.options.perSession.setSession(s.message, counter)
	messageHeader{run: s.load.ledger.run, sender: uint32(s.index), counter: counter, sent: start.UnixNano()}.put(s.body)
	receipt, err := link.SendWithReceipt(ctx, s.message, nil)
	if err != nil {
		s.load.counts.sendUnknown.Add(1)
		return pendingSend{}, err
	}
	return pendingSend{receipt: receipt, counter: counter, start: start}, nil
}

// lateMax is how late a timer may fire before the message counts as delayed. Smaller delays come from the
// scheduler and not from the broker.
const lateMax = time.Millisecond

// waitUntilDue waits until the next message is due and returns the time from which its latency counts; false if
// there is nothing left to send.
func (s *sender) waitUntilDue() (time.Time, bool) {
	now := time.Now()
	if s.interval == 0 {
		return now, true
	}
	due := s.due
	s.due = due.Add(s.interval)
	if wait := due.Sub(now); wait > 0 {
		s.timer.Reset(wait)
		select {
		case <-s.timer.C:
		case <-s.load.stop:
			return now, false
		}
		now = time.Now()
	}
	if now.Sub(due) > lateMax {
		return due, true
	}
	return now, true
}

// confirm awaits the confirmations. If the connection is lost, it continues, and counts every message in flight as
// one with an unknown outcome.
func (s *sender) confirm(ctx context.Context, flights <-chan pendingSend) error {
	var first error
	for f := range flights {
		if err := s.awaitConfirmation(ctx, &f); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// awaitConfirmation waits for the outcome of one message and counts it.
func (s *sender) awaitConfirmation(ctx context.Context, f *pendingSend) error {
	c := &s.load.counts
	err := awaitOutcome(ctx, &f.receipt)
	now := time.Now()
	switch {
	case err == nil:
		s.load.ledger.tracks[s.index].confirmed.set(f.counter)
		c.confirmed.Add(1)
		c.lastConfirm.Store(now.UnixNano())
		if s.load.measuring.Load() {
			s.confirms.add(int64(now.Sub(f.start)))
		}
		return nil
	case gateway.IsRejection(err):
		s.load.ledger.tracks[s.index].refused.set(f.counter)
		c.sendRefused.Add(1)
		if isPermanent(err) {
			return err
		}
		return nil
	}
	c.sendUnknown.Add(1)
	return err
}

// awaitOutcome is like awaitReceipt but has no time limit of its own: a timer per message would cost more than
// everything else here.
func awaitOutcome(ctx context.Context, receipt *amqp.SendReceipt) error {
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	return gateway.ClassifyOutcome(state)
}
