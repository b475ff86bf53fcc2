package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// The load of sessions: senders that count up in each of their sessions, and consumers that
// accept the next session, receive its messages, and release it.
const (
	sessionsEach    = 10                // sessions of a sender
	sessionLife     = time.Minute       // of a lock: longer than a fault
	sessionWait     = 2 * time.Second   // for the next session
	sessionBatch    = 20                // messages received from a session at a time, at most
	sessionArrivals = 1500              // messages in each phase of a test
	sessionsWithin  = 120 * time.Second // for all of a phase
)

// sessionLoad checks what consumers receive from sessions.
type sessionLoad struct {
	*testing.T
	c        *harness.Cluster
	errors   atomic.Int64
	received atomic.Int64

	mu      sync.Mutex
	holders map[string]string // consumer that holds a session now
	next    map[string]int    // the next number in each session
	sent    map[string]int    // confirmed sends to each session

	work    context.Context //nolint:containedctx // of the test
	end     context.CancelFunc
	running sync.WaitGroup
}

func newSessionLoad(t *testing.T, c *harness.Cluster) *sessionLoad {
	l := &sessionLoad{T: t, c: c, holders: map[string]string{}, next: map[string]int{}, sent: map[string]int{}}
	l.work, l.end = context.WithCancel(t.Context())
	t.Cleanup(func() {
		l.end()
		l.running.Wait()
	})
	return l
}

func (l *sessionLoad) client(m *harness.Member) *azservicebus.Client {
	l.Helper()
	c, err := azservicebus.NewClientFromConnectionString(m.ConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}, // report errors instead of retrying
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// send counts up in sessions of its own, one send at a time, until ctx ends.
func (l *sessionLoad) send(ctx context.Context, name string, m *harness.Member) {
	client := l.client(m)
	l.running.Go(func() {
		sender, err := client.NewSender(queue, nil)
		if err != nil {
			l.Error(err)
			return
		}
		for i := 0; ctx.Err() == nil; i++ {
			session := fmt.Sprintf("%s-%d", name, i%sessionsEach)
			message := &azservicebus.Message{SessionID: &session, Body: fmt.Appendf(nil, "%d", i/sessionsEach)}
			if err := sender.SendMessage(l.Context(), message, nil); err != nil {
				l.errors.Add(1)
				l.Logf("send to %s at %s: %v", session, m.Name, err)
				return
			}
			l.mu.Lock()
			l.sent[session]++
			l.mu.Unlock()
		}
	})
}

// consume accepts session after session.
func (l *sessionLoad) consume(name string, m *harness.Member) {
	client := l.client(m)
	l.running.Go(func() {
		for l.work.Err() == nil {
			err := l.serveSession(client, name)
			var coded *azservicebus.Error
			if err == nil || l.work.Err() != nil || errors.As(err, &coded) && coded.Code == azservicebus.CodeTimeout {
				continue
			}
			l.errors.Add(1)
			l.Logf("%s at %s: %v", name, m.Name, err)
			return
		}
	})
}

// serveSession holds one session: no other consumer may hold it, and its messages arrive in order.
func (l *sessionLoad) serveSession(client *azservicebus.Client, name string) error {
	ctx, cancel := context.WithTimeout(l.work, sessionWait)
	defer cancel()
	r, err := client.AcceptNextSessionForQueue(ctx, queue, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	session := r.SessionID()
	l.mu.Lock()
	if other := l.holders[session]; other != "" {
		l.Errorf("%s accepted session %s, which %s holds", name, session, other)
	}
	l.holders[session] = name
	l.mu.Unlock()
	messages, err := r.ReceiveMessages(l.Context(), sessionBatch, nil)
	if err == nil {
		err = l.settle(r, messages)
	}
	l.mu.Lock()
	delete(l.holders, session)
	l.mu.Unlock()
	return errors.Join(err, r.Close(l.Context()))
}

func (l *sessionLoad) settle(r *azservicebus.SessionReceiver, messages []*azservicebus.ReceivedMessage) error {
	session := r.SessionID()
	for _, m := range messages {
		l.mu.Lock()
		want := l.next[session]
		l.next[session]++
		l.mu.Unlock()
		if string(m.Body) != fmt.Sprint(want) || m.DeliveryCount != 1 {
			l.Errorf("session %s: %s came as delivery %d, number %d was next", session, m.Body, m.DeliveryCount, want)
		}
		if err := r.CompleteMessage(l.Context(), m, nil); err != nil {
			return fmt.Errorf("complete %s of %s: %w", m.Body, session, err)
		}
		l.received.Add(1)
	}
	return nil
}

// waitCompleted waits until n more messages were completed.
func (l *sessionLoad) waitCompleted(n int64, what string) {
	l.Helper()
	begun := l.received.Load()
	harness.Progress(l, sessionsWithin, what, func(context.Context) (int, error) {
		have := l.received.Load() - begun
		if have < n {
			return int(have), fmt.Errorf("%d of %d messages completed", have, n)
		}
		return int(have), nil
	})
}

// finish ends the senders, waits for what they sent, and compares.
func (l *sessionLoad) finish(stop context.CancelFunc) {
	l.Helper()
	stop()
	harness.Progress(l, sessionsWithin, "all that was sent", func(context.Context) (int, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for session, n := range l.sent {
			if l.next[session] != n {
				return int(l.received.Load()), fmt.Errorf("session %s: %d sent, %d came", session, n, l.next[session])
			}
		}
		return 0, nil
	})
	l.c.WaitCounts(l, queue, harness.Counts{})
	l.end()
	l.running.Wait()
	if n := l.errors.Load(); n != 0 {
		l.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
	l.Logf("%d messages of %d sessions", l.received.Load(), len(l.sent))
}

// surviveWithSessions runs the load while a fault is injected into the leader.
func surviveWithSessions(t *testing.T, inject func(l *sessionLoad, leader *harness.Member)) {
	c, leader, others := start(t, harness.Settings{LockDuration: sessionLife, More: harness.Fields{"requiresSession": true}})
	l := newSessionLoad(t, c)
	sending, stop := context.WithCancel(t.Context())
	defer stop()
	held := l.hold(others[1])
	for i := range 6 {
		l.send(sending, fmt.Sprintf("sender-%d", i), others[i%2])
		l.consume(fmt.Sprintf("consumer-%d", i), others[(i+1)%2])
	}
	l.waitCompleted(sessionArrivals, "load before the fault")
	inject(l, leader)
	held.checkHeld()
	l.waitCompleted(sessionArrivals, "load after the fault")
	l.finish(stop)
}

// The leader is killed while sessions are held, waited for and released: their holders continue,
// no other consumer gets their sessions, and each message arrives once, in the order of its
// session.
func TestSessionsSurviveLeaderKill(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	surviveWithSessions(t, func(l *sessionLoad, leader *harness.Member) {
		leader.Kill()
		l.waitCompleted(sessionArrivals, "load without the leader")
		leader.Start()
		leader.WaitReady()
		waitCaughtUp(t, leader, l.c.Others(leader)[0])
	})
}

// The same with a leader that is paused and continues as if it still led.
func TestSessionsSurviveLeaderPause(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	surviveWithSessions(t, func(l *sessionLoad, leader *harness.Member) {
		leader.Pause()
		l.waitCompleted(sessionArrivals, "load while the leader is paused")
		leader.Resume()
		waitCaughtUp(t, leader, l.c.Others(leader)[0])
	})
}

// sessionHolder is a session that is held during a fault, with messages in flight and a
// state.
type sessionHolder struct {
	l        *sessionLoad
	r        *azservicebus.SessionReceiver
	inFlight []*azservicebus.ReceivedMessage
	rival    *azservicebus.Client
}

// heldSession is the session that is held all the time.
const heldSession = "held"

func (l *sessionLoad) hold(m *harness.Member) *sessionHolder {
	l.Helper()
	h := &sessionHolder{l: l, rival: l.client(l.c.Others(m)[0])}
	sender, err := h.rival.NewSender(queue, nil)
	if err != nil {
		l.Fatal(err)
	}
	session := heldSession
	for i := range 6 {
		if err := sender.SendMessage(l.Context(), &azservicebus.Message{SessionID: &session, Body: fmt.Appendf(nil, "%d", i)}, nil); err != nil {
			l.Fatal(err)
		}
	}
	if h.r, err = l.client(m).AcceptSessionForQueue(l.Context(), queue, heldSession, nil); err != nil {
		l.Fatal(err)
	}
	h.inFlight = h.receive(3)
	if err := h.r.SetSessionState(l.Context(), []byte("half way"), nil); err != nil {
		l.Fatal(err)
	}
	return h
}

func (h *sessionHolder) receive(n int) []*azservicebus.ReceivedMessage {
	h.l.Helper()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		some, err := h.r.ReceiveMessages(h.l.Context(), n-len(all), nil)
		if err != nil {
			h.l.Fatalf("receive in the session that is held: %v", err)
		}
		all = append(all, some...)
	}
	return all
}

// checkHeld completes the messages that were in flight before the fault and the others, in order, renews the lock, and
// reads the state; meanwhile no other client can accept the session.
func (h *sessionHolder) checkHeld() {
	h.l.Helper()
	ctx := h.l.Context()
	if _, err := h.rival.AcceptSessionForQueue(ctx, queue, heldSession, nil); err == nil {
		h.l.Error("a session that is held was given to another")
	}
	if err := h.r.RenewSessionLock(ctx, nil); err != nil {
		h.l.Errorf("renew: %v", err)
	}
	if state, err := h.r.GetSessionState(ctx, nil); err != nil || string(state) != "half way" {
		h.l.Errorf("the state is %q, %v", state, err)
	}
	var got []string
	for _, m := range slices.Concat(h.inFlight, h.receive(3)) {
		got = append(got, string(m.Body))
		if err := h.r.CompleteMessage(ctx, m, nil); err != nil || m.DeliveryCount != 1 {
			h.l.Errorf("%s came as delivery %d; complete: %v", m.Body, m.DeliveryCount, err)
		}
	}
	if !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5"}) {
		h.l.Errorf("the session that is held gave %v", got)
	}
	if err := h.r.Close(ctx); err != nil {
		h.l.Errorf("close: %v", err)
	}
}
