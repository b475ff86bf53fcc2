package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/history"
)

const (
	answerWithin   = 90 * time.Second // of one send or settlement: longer than any allowed pause
	confirmsWithin = 90 * time.Second // in which some load makes progress, even during faults
	dialWithin     = 60 * time.Second // a member that does not run refuses at once
	redialDelay    = 200 * time.Millisecond
)

// load is senders to one queue or topic and receivers of the same queue, or of each of
// several entities at which every message must arrive. They record a history.
type load struct {
	history.Log
	t             *testing.T
	queue         string       // destination of the senders
	entities      []string     // where receivers receive; none: the queue
	drainedQueues []string     // entities that are empty in the end
	next          atomic.Int64 // number of the next message

	// Number of errors of clients. Clients of a member that runs all the time must see none.
	errors atomic.Int64

	mu      sync.Mutex
	last    time.Time     // of the last confirmed send
	longest time.Duration // between two confirmed sends

	senders, receivers         sync.WaitGroup
	stopSending, stopReceiving context.CancelFunc
	sending, receiving         context.Context
}

func newLoad(t *testing.T, queue string, entities ...string) *load {
	t.Helper()
	l := &load{t: t, queue: queue, entities: entities, drainedQueues: entities}
	if len(entities) == 0 {
		l.drainedQueues = []string{queue}
	}
	l.sending, l.stopSending = context.WithCancel(t.Context())
	l.receiving, l.stopReceiving = context.WithCancel(t.Context())
	t.Cleanup(func() {
		l.stopSending()
		l.stopReceiving()
		l.senders.Wait()
		l.receivers.Wait()
	})
	return l
}

// send starts n senders, each with one send in flight. They connect to the members
// in turn, beginning with the first, and to the next one when a connection is lost.
func (l *load) send(n int, at ...*harness.Member) {
	for i := range n {
		name := fmt.Sprintf("sender-%d@%s", i, at[0].Name)
		l.senders.Go(func() {
			l.reconnectLoop(l.sending, name, at, func(ctx context.Context, s *amqp.Session) error {
				link, err := s.NewSender(ctx, l.queue, nil)
				for err == nil && ctx.Err() == nil {
					err = l.sendOne(link, name)
				}
				return err
			})
		})
	}
}

// sendOne sends a message and records the outcome. A refused message was
// not stored; after any other error it may have been.
func (l *load) sendOne(link *amqp.Sender, name string) error {
	id := fmt.Sprintf("m%07d", l.next.Add(1))
	m := amqp.NewMessage([]byte(id + strings.Repeat(".", 1024-len(id))))
	m.Properties = &amqp.MessageProperties{MessageID: id}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	l.Add(history.Event{Kind: history.SendBegun, ID: id, Client: name})
	err := link.Send(ctx, m, nil)
	var refused *amqp.Error
	switch {
	case err == nil:
		l.Add(history.Event{Kind: history.SendAccepted, ID: id, Client: name})
		l.recordConfirmed()
		return nil
	case errors.As(err, &refused):
		l.Add(history.Event{Kind: history.SendRefused, ID: id, Client: name, Note: err.Error()})
	default:
		l.Add(history.Event{Kind: history.SendUnknown, ID: id, Client: name, Note: err.Error()})
	}
	return err
}

// recordConfirmed records the time of a confirmed send.
func (l *load) recordConfirmed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() {
		l.longest = max(l.longest, now.Sub(l.last))
	}
	l.last = now
}

// takeLongestPause returns the longest time between two confirmed sends since the last call.
func (l *load) takeLongestPause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := l.longest
	l.longest = 0
	return longest
}

// receive starts n receivers, at each entity if there are several. They complete each message,
// except that they abandon one message in fifty once.
func (l *load) receive(n int, at ...*harness.Member) {
	if len(l.entities) == 0 {
		l.receiveFrom(l.queue, "", n, at)
	}
	for _, place := range l.entities {
		l.receiveFrom(place, place, n, at)
	}
}

// receiveFrom is receive from one queue, which the history calls entity.
func (l *load) receiveFrom(queue, place string, n int, at []*harness.Member) {
	for i := range n {
		name := fmt.Sprintf("receiver-%d@%s", i, at[0].Name)
		options := amqp.ReceiverOptions{Credit: 4, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}
		l.receiver(queue, name, at, options, func(ctx context.Context, link *amqp.Receiver) error {
			return l.receiveOne(ctx, link, name, place)
		})
	}
}

// receiver starts a receiver of one queue that calls take for one message after the other.
func (l *load) receiver(queue, name string, at []*harness.Member, options amqp.ReceiverOptions, take func(context.Context, *amqp.Receiver) error) {
	l.receivers.Go(func() {
		l.reconnectLoop(l.receiving, name, at, func(ctx context.Context, s *amqp.Session) error {
			link, err := s.NewReceiver(ctx, queue, &options)
			for err == nil && ctx.Err() == nil {
				err = take(ctx, link)
			}
			return err
		})
	})
}

// receiveOne receives a message and settles it.
func (l *load) receiveOne(ctx context.Context, link *amqp.Receiver, name, place string) error {
	m, err := link.Receive(ctx, nil)
	if err != nil {
		return err
	}
	id, _ := m.Properties.MessageID.(string)
	sequence, _ := m.Annotations["x-opt-sequence-number"].(int64)
	origin, forwarded := m.Annotations["x-opt-enqueue-sequence-number"].(int64)
	if !forwarded {
		origin = sequence // the annotation is there where it differs
	}
	until, _ := m.Annotations["x-opt-locked-until"].(time.Time)
	note := func(kind history.Kind, what string) {
		l.Add(history.Event{Kind: kind, ID: id, Client: name, Entity: place, Note: what})
	}
	l.Add(history.Event{
		Kind: history.Delivered, ID: id, Client: name, Entity: place,
		Sequence: sequence, EnqueuedSequence: origin, FailedDeliveries: m.Header.DeliveryCount, LockedUntil: until,
	})
	if body := string(m.GetData()); !strings.HasPrefix(body, id+".") || len(body) != 1024 {
		l.t.Errorf("message %s came with another body of %d bytes", id, len(body))
	}
	settle, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	note(history.SettleBegun, "")
	kind := history.Completed
	if sequence%50 == 0 && m.Header.DeliveryCount == 0 {
		kind = history.Returned
		err = link.ModifyMessage(settle, m, &amqp.ModifyMessageOptions{DeliveryFailed: true})
	} else {
		err = link.AcceptMessage(settle, m)
	}
	if err != nil {
		note(history.SettleFailed, err.Error())
		return err
	}
	note(kind, "")
	return nil
}

// receiveAndDelete starts n receivers in the mode receive-and-delete.
func (l *load) receiveAndDelete(n int, at ...*harness.Member) {
	for i := range n {
		name := fmt.Sprintf("taker-%d@%s", i, at[0].Name)
		options := amqp.ReceiverOptions{Credit: 16, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}
		l.receiver(l.queue, name, at, options, func(ctx context.Context, link *amqp.Receiver) error {
			m, err := link.Receive(ctx, nil)
			if err != nil {
				return err
			}
			id, _ := m.Properties.MessageID.(string)
			sequence, _ := m.Annotations["x-opt-sequence-number"].(int64)
			l.Add(history.Event{Kind: history.ReceivedAndDeleted, ID: id, Client: name, Sequence: sequence, FailedDeliveries: m.Header.DeliveryCount})
			return nil
		})
	}
}

// reconnectLoop runs work on a session until ctx ends, and connects again, to the next member,
// when the work or the connection fails.
func (l *load) reconnectLoop(ctx context.Context, name string, at []*harness.Member, work func(context.Context, *amqp.Session) error) {
	for turn := 0; ctx.Err() == nil; turn++ {
		m := at[turn%len(at)]
		err := l.onConnection(ctx, m, work)
		if ctx.Err() != nil {
			return
		}
		l.errors.Add(1)
		l.t.Logf("%s at %s: %v", name, m.Name, err)
		select {
		case <-ctx.Done():
		case <-time.After(redialDelay):
		}
	}
}

// onConnection runs work on one connection.
func (l *load) onConnection(ctx context.Context, m *harness.Member, work func(context.Context, *amqp.Session) error) error {
	dial, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := amqp.Dial(dial, "amqp://"+m.AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(dial, nil)
	if err != nil {
		return err
	}
	return work(ctx, session)
}

// waitConfirmed waits until n more sends were confirmed.
func (l *load) waitConfirmed(n int, what string) {
	l.t.Helper()
	l.waitCount(history.SendAccepted, n, what)
}

// waitCount waits until n more events of a kind were recorded.
func (l *load) waitCount(kind history.Kind, n int, what string) {
	l.t.Helper()
	begun := l.Count(kind)
	harness.Progress(l.t, confirmsWithin, what, func(context.Context) (int, error) {
		have := l.Count(kind) - begun
		if have < n {
			return have, fmt.Errorf("%d of %d", have, n)
		}
		return have, nil
	})
}

// confirmedBetween lists the confirmations of sends and completions that were both
// requested and confirmed between two moments.
func (l *load) confirmedBetween(from, to time.Time) []history.Event {
	begun := map[string]bool{}
	var found []history.Event
	for _, e := range l.Events() {
		if e.At.Before(from) || e.At.After(to) {
			continue
		}
		switch e.Kind {
		case history.SendBegun:
			begun["send "+e.ID] = true
		case history.SettleBegun:
			begun["settle "+e.ID] = true
		case history.SendAccepted:
			if begun["send "+e.ID] {
				found = append(found, e)
			}
		case history.Completed, history.Returned:
			if begun["settle "+e.ID] {
				found = append(found, e)
			}
		case history.SendRefused, history.SendUnknown, history.Delivered, history.ReceivedAndDeleted, history.Renewed, history.SettleFailed:
		}
	}
	return found
}

// waitDrained waits until one member counts no messages, as long as messages arrive.
func (l *load) waitDrained(c *harness.Cluster) {
	l.t.Helper()
	for _, queue := range l.drainedQueues {
		harness.Progress(l.t, confirmsWithin, queue+" is drained", func(ctx context.Context) (int, error) {
			n := l.Count(history.Completed) + l.Count(history.ReceivedAndDeleted)
			q, err := c.Running()[0].Queue(ctx, queue)
			if err == nil && q.Counts != (harness.Counts{}) {
				err = fmt.Errorf("counts %+v", q.Counts)
			}
			return n, err
		})
	}
}

// finish ends the senders, lets the receivers drain the queue, and checks the history.
func (l *load) finish(c *harness.Cluster) {
	l.t.Helper()
	l.stopSending()
	l.senders.Wait()
	l.waitDrained(c)
	for _, queue := range l.drainedQueues {
		c.WaitCounts(l.t, queue, harness.Counts{})
	}
	if l.Count(history.ReceivedAndDeleted) > 0 { // messages that left the queue may still be in flight
		harness.Eventually(l.t, confirmsWithin, "the last messages", func(context.Context) error {
			if open := history.Unfinished(l.Events(), l.entities...); len(open) > 0 {
				return fmt.Errorf("%d accepted messages did not arrive, %s first", len(open), open[0])
			}
			return nil
		})
	}
	l.stopReceiving()
	l.receivers.Wait()
	events := l.Events()
	violations := history.Check(events, l.entities...)
	for i, b := range violations {
		if i == 20 {
			l.t.Errorf("and %d more", len(violations)-i)
			break
		}
		l.t.Error(b)
	}
	l.t.Logf("%d sends accepted, %d refused, %d unknown; %d deliveries, %d taken, %d completed, %d returned, %d settlements failed",
		l.Count(history.SendAccepted), l.Count(history.SendRefused), l.Count(history.SendUnknown), l.Count(history.Delivered), l.Count(history.ReceivedAndDeleted),
		l.Count(history.Completed), l.Count(history.Returned), l.Count(history.SettleFailed))
	if open := history.Unfinished(events, l.entities...); len(open) != 0 && l.Count(history.SettleFailed) == 0 {
		l.t.Errorf("the queue is empty, but %d accepted messages were not completed, %s first", len(open), open[0])
	}
}
