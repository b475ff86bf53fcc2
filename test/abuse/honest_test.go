package abuse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/history"
)

const (
	honestQueue    = "honest"
	honestSenders  = 2                      // at each member
	honestPace     = 40 * time.Millisecond  // between two sends of each
	newcomerPace   = 500 * time.Millisecond // between two new connections at each member
	honestBytes    = 512
	answerWithin   = 60 * time.Second // of one operation of an honest client
	progressWithin = 60 * time.Second // in which honest clients make progress
)

// honest is clients at every member that send, receive and complete at a steady pace, and
// newcomers that connect, send one message and disconnect. They must see no error.
type honest struct {
	history.Log
	t *testing.T
	c *harness.Cluster

	mu                sync.Mutex
	sendLatencies     []time.Duration // of sends, since the last call of latencies
	newcomerLatencies []time.Duration // of newcomers, from dial to the confirmation of their send
	period            int             // number of calls of latencies
	failures          []string
	next              int

	sending, receiving   context.Context //nolint:containedctx // of the test
	stopSends, stop      context.CancelFunc
	senders, receivers   sync.WaitGroup
	confirmed, newcomers int
}

func newHonest(t *testing.T, c *harness.Cluster) *honest {
	t.Helper()
	h := &honest{t: t, c: c}
	h.sending, h.stopSends = context.WithCancel(t.Context())
	h.receiving, h.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		h.stopSends()
		h.stop()
		h.senders.Wait()
		h.receivers.Wait()
	})
	c.CreateQueue(t, honestQueue, harness.Settings{LockDuration: 5 * time.Minute, MaxDeliveryCount: 100})
	for _, m := range c.Members {
		for i := range honestSenders {
			name := fmt.Sprintf("sender-%d@%s", i, m.Name)
			h.senders.Go(func() { h.keepSession(h.sending, name, m, h.sendLoop) })
		}
		h.receivers.Go(func() { h.keepSession(h.receiving, "receiver@"+m.Name, m, h.receiveLoop) })
		h.senders.Go(func() {
			name := "newcomer@" + m.Name
			_ = every(h.sending, newcomerPace, func() error { h.connectAndSend(name, m); return nil })
		})
	}
	return h
}

// withSession opens a connection and a session, and calls do.
func withSession(ctx context.Context, m *harness.Member, do func(*amqp.Session) error) error {
	dial, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn, err := amqp.Dial(dial, "amqp://"+m.AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer func() { _ = conn.Close() }()
	s, err := conn.NewSession(dial, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	return do(s)
}

// keepSession calls do on sessions until ctx ends; an earlier end is a failure.
func (h *honest) keepSession(ctx context.Context, name string, m *harness.Member, do func(context.Context, string, *amqp.Session) error) {
	for ctx.Err() == nil {
		err := withSession(ctx, m, func(s *amqp.Session) error { return do(ctx, name, s) })
		if err != nil && ctx.Err() == nil {
			h.recordFailure(name, err)
			sleep(ctx, redialDelay)
		}
	}
}

func (h *honest) recordFailure(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = append(h.failures, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), name, err))
}

// sendLoop sends at the pace; the latency of a send that waits for the previous one counts from the time it was due,
// or from the last call of latencies if that was later.
func (h *honest) sendLoop(ctx context.Context, name string, s *amqp.Session) error {
	link, err := s.NewSender(ctx, honestQueue, nil)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	period := 0
	for due := time.Now(); ; due = due.Add(honestPace) {
		if sleep(ctx, time.Until(due)); ended(ctx) {
			return nil
		}
		if now := h.currentPeriod(); now != period {
			period, due = now, time.Now()
		}
		if err := h.sendOne(link, name); err != nil {
			return err
		}
		h.recordLatency(period, time.Since(due))
	}
}

// currentPeriod is the number of the period that latencies measures.
func (h *honest) currentPeriod() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.period
}

// recordLatency records the latency of a send, if it belongs to the current period.
func (h *honest) recordLatency(period int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed++
	if period == h.period {
		h.sendLatencies = append(h.sendLatencies, took)
	}
}

func (h *honest) sendOne(link *amqp.Sender, name string) error {
	h.mu.Lock()
	h.next++
	id := fmt.Sprintf("m%07d", h.next)
	h.mu.Unlock()
	m := amqp.NewMessage([]byte(id + strings.Repeat(".", honestBytes-len(id))))
	m.Properties = &amqp.MessageProperties{MessageID: id}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	h.Add(history.Event{Kind: history.SendBegun, ID: id, Client: name})
	if err := link.Send(ctx, m, nil); err != nil {
		h.Add(history.Event{Kind: history.SendUnknown, ID: id, Client: name, Note: err.Error()})
		return fmt.Errorf("send: %w", err)
	}
	h.Add(history.Event{Kind: history.SendAccepted, ID: id, Client: name})
	return nil
}

// connectAndSend runs one newcomer.
func (h *honest) connectAndSend(name string, m *harness.Member) {
	at := time.Now()
	err := withSession(context.WithoutCancel(h.sending), m, func(s *amqp.Session) error {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		link, err := s.NewSender(ctx, honestQueue, nil)
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		return h.sendOne(link, name)
	})
	if err != nil {
		h.recordFailure(name, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newcomerLatencies = append(h.newcomerLatencies, time.Since(at))
	h.newcomers++
}

// receiveLoop receives and completes.
func (h *honest) receiveLoop(ctx context.Context, name string, s *amqp.Session) error {
	link, err := s.NewReceiver(ctx, honestQueue, &amqp.ReceiverOptions{Credit: 16, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	for {
		m, err := link.Receive(ctx, nil)
		switch {
		case ended(ctx):
			return nil
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		id, _ := m.Properties.MessageID.(string)
		sequence, _ := m.Annotations["x-opt-sequence-number"].(int64)
		until, _ := m.Annotations["x-opt-locked-until"].(time.Time)
		h.Add(history.Event{Kind: history.Delivered, ID: id, Client: name, Sequence: sequence, FailedDeliveries: m.Header.DeliveryCount, LockedUntil: until})
		h.Add(history.Event{Kind: history.SettleBegun, ID: id, Client: name})
		settle, cancel := context.WithTimeout(context.Background(), answerWithin)
		err = link.AcceptMessage(settle, m)
		cancel()
		if err != nil {
			h.Add(history.Event{Kind: history.SettleFailed, ID: id, Client: name, Note: err.Error()})
			return fmt.Errorf("complete: %w", err)
		}
		h.Add(history.Event{Kind: history.Completed, ID: id, Client: name})
	}
}

// waitProgress waits until honest clients have sent, completed and connected so many more times than at the call.
func (h *honest) waitProgress(sends, newcomers int) {
	h.t.Helper()
	begun := func() int { h.mu.Lock(); defer h.mu.Unlock(); return h.confirmed }()
	came := func() int { h.mu.Lock(); defer h.mu.Unlock(); return h.newcomers }()
	completed := h.Count(history.Completed)
	harness.Progress(h.t, progressWithin, "honest clients", func(context.Context) (int, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		n, c, done := h.confirmed-begun, h.newcomers-came, h.Count(history.Completed)-completed
		if n < sends || c < newcomers || done < sends {
			return n + c + done, fmt.Errorf("%d of %d sends confirmed, %d completed, %d of %d newcomers served; failures: %q", n, sends, done, c, newcomers, h.failures)
		}
		return n + c + done, nil
	})
}

// latencies are percentiles: the 99th of sends and of newcomers, and the median of sends.
type latencies struct{ sends, median, newcomers time.Duration }

// latencies returns those since the last call.
func (h *honest) latencies() latencies {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := latencies{sends: p99(h.sendLatencies), newcomers: p99(h.newcomerLatencies), median: median(h.sendLatencies)}
	h.sendLatencies, h.newcomerLatencies = nil, nil
	h.period++
	return of
}

func p99(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// takeFailures returns the failures since the last call.
func (h *honest) takeFailures() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	failures := h.failures
	h.failures = nil
	return failures
}

// finish ends the senders, waits until everything is received, and checks the history.
func (h *honest) finish() {
	h.t.Helper()
	h.stopSends()
	h.senders.Wait()
	harness.Progress(h.t, progressWithin, "all messages of honest clients arrive", func(context.Context) (int, error) {
		if open := history.Unfinished(h.Events()); len(open) > 0 {
			return h.Count(history.Completed), fmt.Errorf("%d have not", len(open))
		}
		return 0, nil
	})
	h.stop()
	h.receivers.Wait()
	for _, b := range history.Check(h.Events()) {
		h.t.Error(b)
	}
	for _, failure := range h.takeFailures() {
		h.t.Errorf("honest client: %s", failure)
	}
}
