package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/kit"
)

// A failoverClient uses the official client library at a member that runs all the time: it sends, receives, and
// holds locks and a session while other members fail.
const (
	failoverSenders         = 4
	failoverReceivers       = 3
	failoverLocks           = 12  // locks that are held during a fault
	failoverPhase           = 300 // sends confirmed in each phase of a round
	failoverSessionMessages = 2   // messages of the session that are held during a fault
	failoverLockDuration    = 2 * time.Minute
	failoverBatch           = 8
	failoverQueue           = "ride"
	roundsDefault           = 1 // of each kind of fault, unless PEEKLOCK_ROUNDS is set
)

// roundsVariable sets the number of rounds, and strict limits of pauses. It needs an otherwise idle machine.
const roundsVariable = "PEEKLOCK_ROUNDS"

// beside lets a test run beside others, unless it measures pauses.
func beside(t *testing.T) {
	t.Helper()
	if os.Getenv(roundsVariable) == "" {
		t.Parallel()
	}
}

// rounds is the number of rounds of each kind of fault.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv(roundsVariable)
	if text == "" {
		return roundsDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PEEKLOCK_ROUNDS is %q, not a number from 1 on", text)
	}
	return n
}

// failoverClient has its queue, and one with sessions in the same partition, so that both have the
// same leader.
type failoverClient struct {
	*load
	c             *harness.Cluster
	at            *harness.Member
	client        *azservicebus.Client
	lockReceiver  *azservicebus.Receiver
	session       *azservicebus.SessionReceiver
	sessionSender *azservicebus.Sender // to the session

	lockedMessages  []*azservicebus.ReceivedMessage
	sessionMessages []*azservicebus.ReceivedMessage
	sessionSent     int // messages of the session so far
}

// newFailoverClient creates the queues, starts the load, and accepts the session. The name distinguishes clients
// of one cluster.
func newFailoverClient(t *testing.T, c *harness.Cluster, at *harness.Member, name string) *failoverClient {
	t.Helper()
	r := &failoverClient{load: newLoad(t, name), c: c, at: at}
	c.CreateQueue(t, name, harness.Settings{LockDuration: failoverLockDuration})
	sessions := r.createSessionQueue()
	var err error
	r.client = kit.Must(azservicebus.NewClientFromConnectionString(at.ConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}, // report errors instead of retrying
	}))(t)
	t.Cleanup(func() { _ = r.client.Close(context.Background()) })
	r.must(&r.lockReceiver)(r.client.NewReceiverForQueue(name, nil))
	if r.sessionSender, err = r.client.NewSender(sessions, nil); err != nil {
		t.Fatal(err)
	}
	r.sendToSession()
	if r.session, err = r.client.AcceptSessionForQueue(t.Context(), sessions, heldSession, nil); err != nil {
		t.Fatal(err)
	}
	r.sessionMessages = r.receiveFromSession()
	for i := range failoverSenders {
		r.senders.Go(func() { r.sendLoop(fmt.Sprintf("sender-%d@%s", i, at.Name)) })
	}
	for i := range failoverReceivers {
		r.receivers.Go(func() { r.receiveLoop(fmt.Sprintf("receiver-%d@%s", i, at.Name)) })
	}
	return r
}

// must stores a receiver, or ends the test.
func (r *failoverClient) must(to **azservicebus.Receiver) func(*azservicebus.Receiver, error) {
	return func(got *azservicebus.Receiver, err error) {
		if err != nil {
			r.t.Fatal(err)
		}
		*to = got
	}
}

// createSessionQueue creates a queue with sessions in the partition of the client's queue.
func (r *failoverClient) createSessionQueue() string {
	r.t.Helper()
	partition := func(name string) uint32 {
		q, err := r.at.Queue(r.t.Context(), name)
		if err != nil {
			r.t.Fatal(err)
		}
		return q.Partition
	}
	want := partition(r.queue)
	for i := range 64 {
		name := fmt.Sprintf("%s-sessions-%d", r.queue, i)
		r.c.CreateQueue(r.t, name, harness.Settings{LockDuration: failoverLockDuration, More: harness.Fields{"requiresSession": true}})
		if partition(name) == want {
			return name
		}
	}
	r.t.Fatal("no queue was placed in the partition of the first")
	return ""
}

// recordError records an error of the client, and waits a little.
func (r *failoverClient) recordError(ctx context.Context, name, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	r.errors.Add(1)
	r.t.Logf("%s %s: %s: %v", time.Now().Format("15:04:05.000"), name, what, err)
	select {
	case <-ctx.Done():
	case <-time.After(redialDelay):
	}
}

// sendLoop sends messages one after the other.
func (r *failoverClient) sendLoop(name string) {
	sender, err := r.client.NewSender(r.queue, nil)
	for r.sending.Err() == nil {
		if err == nil {
			err = r.sendMessage(sender, name)
		}
		if err != nil {
			r.recordError(r.sending, name, "send", err)
			err = nil
		}
	}
}

func (r *failoverClient) sendMessage(sender *azservicebus.Sender, name string) error {
	id := fmt.Sprintf("m%07d", r.next.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	r.Add(history.Event{Kind: history.SendBegun, ID: id, Client: name})
	err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte(id + strings.Repeat(".", 1024-len(id)))}, nil)
	if err != nil {
		r.Add(history.Event{Kind: history.SendUnknown, ID: id, Client: name, Note: err.Error()})
		return err
	}
	r.Add(history.Event{Kind: history.SendAccepted, ID: id, Client: name})
	r.recordConfirmed()
	return nil
}

// receiveLoop receives and completes messages.
func (r *failoverClient) receiveLoop(name string) {
	receiver, err := r.client.NewReceiverForQueue(r.queue, nil)
	for r.receiving.Err() == nil {
		var messages []*azservicebus.ReceivedMessage
		if err == nil {
			messages, err = receiver.ReceiveMessages(r.receiving, failoverBatch, nil)
		}
		for _, m := range messages {
			r.recordDelivery(m, name)
		}
		for _, m := range messages {
			r.settle(receiver, m, name)
		}
		if err != nil {
			r.recordError(r.receiving, name, "receive", err)
			err = nil
		}
	}
}

// recordDelivery records a delivery.
func (r *failoverClient) recordDelivery(m *azservicebus.ReceivedMessage, name string) {
	e := history.Event{Kind: history.Delivered, ID: m.MessageID, Client: name, FailedDeliveries: m.DeliveryCount - 1}
	if m.SequenceNumber != nil && m.LockedUntil != nil {
		e.Sequence, e.LockedUntil = *m.SequenceNumber, *m.LockedUntil
	}
	r.Add(e)
	if e.FailedDeliveries != 0 {
		r.t.Errorf("%s was delivered before: attempt %d", m.MessageID, m.DeliveryCount)
	}
	if !strings.HasPrefix(string(m.Body), m.MessageID+".") || len(m.Body) != 1024 {
		r.t.Errorf("message %s came with another body of %d bytes", m.MessageID, len(m.Body))
	}
}

// settle completes a message.
func (r *failoverClient) settle(receiver *azservicebus.Receiver, m *azservicebus.ReceivedMessage, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	r.Add(history.Event{Kind: history.SettleBegun, ID: m.MessageID, Client: name})
	if err := receiver.CompleteMessage(ctx, m, nil); err != nil {
		r.Add(history.Event{Kind: history.SettleFailed, ID: m.MessageID, Client: name, Note: err.Error()})
		r.recordError(ctx, name, "complete", err)
		return
	}
	r.Add(history.Event{Kind: history.Completed, ID: m.MessageID, Client: name})
}

// lockMessages locks messages until settleLocked settles them.
func (r *failoverClient) lockMessages() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), confirmsWithin)
	defer cancel()
	for len(r.lockedMessages) < failoverLocks {
		some, err := r.lockReceiver.ReceiveMessages(ctx, failoverLocks-len(r.lockedMessages), nil)
		if err != nil {
			r.t.Fatalf("receive messages to hold: %v", err)
		}
		for _, m := range some {
			r.recordDelivery(m, "holder@"+r.at.Name)
		}
		r.lockedMessages = append(r.lockedMessages, some...)
	}
}

// sendToSession sends the next messages of the session.
func (r *failoverClient) sendToSession() {
	r.t.Helper()
	for range failoverSessionMessages {
		session := heldSession
		m := &azservicebus.Message{SessionID: &session, Body: fmt.Appendf(nil, "%d", r.sessionSent)}
		r.sessionSent++
		if err := r.sessionSender.SendMessage(r.t.Context(), m, nil); err != nil {
			r.errors.Add(1)
			r.t.Errorf("send into the session: %v", err)
		}
	}
}

// receiveFromSession receives these messages.
func (r *failoverClient) receiveFromSession() []*azservicebus.ReceivedMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), confirmsWithin)
	defer cancel()
	var all []*azservicebus.ReceivedMessage
	for len(all) < failoverSessionMessages {
		some, err := r.session.ReceiveMessages(ctx, failoverSessionMessages-len(all), nil)
		if err != nil {
			r.t.Fatalf("receive in the session that is held: %v", err)
		}
		all = append(all, some...)
	}
	for i, m := range all {
		if want := r.sessionSent - failoverSessionMessages + i; string(m.Body) != fmt.Sprint(want) || m.DeliveryCount != 1 {
			r.t.Errorf("the session gave %s as delivery %d, not number %d", m.Body, m.DeliveryCount, want)
		}
	}
	return all
}

// settleLocked settles the locked messages, also in the session, renews the session lock and receives the next messages.
func (r *failoverClient) settleLocked() {
	r.t.Helper()
	for _, m := range r.lockedMessages {
		r.settle(r.lockReceiver, m, "holder@"+r.at.Name)
	}
	r.lockedMessages = nil
	ctx, cancel := context.WithTimeout(r.t.Context(), answerWithin)
	defer cancel()
	if err := r.session.RenewSessionLock(ctx, nil); err != nil {
		r.errors.Add(1)
		r.t.Errorf("renew the session: %v", err)
	}
	for _, m := range r.sessionMessages {
		if err := r.session.CompleteMessage(ctx, m, nil); err != nil {
			r.errors.Add(1)
			r.t.Errorf("complete %s of the session: %v", m.Body, err)
		}
	}
	r.sendToSession()
	r.sessionMessages = r.receiveFromSession()
}

// finishWithoutErrors drains the queue and checks the history.
func (r *failoverClient) finishWithoutErrors() {
	r.t.Helper()
	r.finish(r.c)
	if n := r.errors.Load(); n != 0 {
		r.t.Errorf("the client at %s saw %d errors, only a pause is allowed", r.at.Name, n)
	}
}

// leaderToFail returns the leader of the client's queue. If the client's own member leads, the leadership is first
// transferred to another member.
func (r *failoverClient) leaderToFail(round int) *harness.Member {
	r.t.Helper()
	q, err := r.at.Queue(r.t.Context(), r.queue)
	if err != nil {
		r.t.Fatal(err)
	}
	others := r.c.Others(r.at)
	var leader *harness.Member
	harness.Eventually(r.t, time.Minute, "another member leads "+r.queue, func(ctx context.Context) error {
		if leader = r.c.Leader(r.t, r.queue); leader != r.at {
			return nil
		}
		to := map[string]string{"to": others[round%len(others)].Name}
		return errors.Join(errors.New("the client's own member leads"),
			r.at.Call(ctx, "POST", fmt.Sprintf("/v1/partitions/%d/transfer", q.Partition), to, nil))
	})
	return leader
}

// A failure is a fault of a member: inject begins it, repair ends it.
type failure struct {
	name   string
	inject func(r *failoverClient, m *harness.Member)
	repair func(m *harness.Member)
}

// restart starts a killed or stopped member.
func restart(m *harness.Member) {
	m.Start()
	m.WaitReady()
}

// noRepair is the repair of a failure that ends by itself.
func noRepair(*harness.Member) {}

// injectRounds runs a number of rounds of one kind of fault, and returns the pauses of
// confirmed sends, sorted.
func (r *failoverClient) injectRounds(s failure) []time.Duration {
	r.t.Helper()
	var gaps []time.Duration
	for round := range rounds(r.t) {
		m := r.leaderToFail(round)
		r.waitConfirmed(failoverPhase, "load before the fault")
		r.lockMessages()
		r.takeLongestPause()
		at := time.Now()
		s.inject(r, m)
		r.waitConfirmed(failoverPhase, "load in spite of the fault")
		gap := r.takeLongestPause()
		r.t.Logf("%s, round %d at %s: %s, sends paused for %v", s.name, round+1, at.Format("15:04:05.000"), m.Name, gap.Round(time.Millisecond))
		r.settleLocked()
		s.repair(m)
		waitCaughtUpOn(r.t, r.queue, m, r.at)
		gaps = append(gaps, gap)
	}
	slices.Sort(gaps)
	return gaps
}

// reportPauses prints the pauses of a kind of fault, and fails the test if they are too long.
func reportPauses(t *testing.T, name string, pauses []time.Duration, allowed time.Duration) {
	t.Helper()
	if os.Getenv(roundsVariable) == "" {
		allowed *= busyFactor
	}
	median, most := pauses[len(pauses)/2], pauses[len(pauses)-1]
	t.Logf("GAP %-22s %3d rounds, median %6d ms, longest %6d ms", name, len(pauses), median.Milliseconds(), most.Milliseconds())
	if most > allowed {
		t.Errorf("%s: no send was confirmed for %v, at most %v is allowed", name, most.Round(time.Millisecond), allowed)
	}
}

// The longest allowed pauses in `make rounds`, which has the machine to itself. Beside other packages, busyFactor
// times as much is allowed: pauses there depend on the machine, and the limit only detects a client that waits for
// something unexpected.
const (
	killAllowed   = 3 * time.Second
	silentAllowed = 5 * time.Second
	stopAllowed   = 2 * time.Second
	busyFactor    = 10
)

// The leader is killed, paused or stopped repeatedly under a client at another member: the client
// sees no error, loses no message, gets no message twice, and afterwards settles messages that it
// locked before.
func TestClientsSurviveFailover(t *testing.T) {
	kit.Long(t)
	beside(t)
	c, _, _ := start(t, harness.Settings{})
	surviveFailures(t, newFailoverClient(t, c, c.Members[0], failoverQueue), []failureLimit{
		{failure{"kill -9", func(_ *failoverClient, m *harness.Member) { m.Kill() }, restart}, killAllowed},
		{failure{"pause, 3 to 5 s", pauseFor(3*time.Second, 5*time.Second), noRepair}, silentAllowed},
		{failure{"pause, 0.5 to 2 s", pauseFor(500*time.Millisecond, 2*time.Second), noRepair}, silentAllowed},
		{failure{"stop in order", func(_ *failoverClient, m *harness.Member) { m.Stop() }, restart}, stopAllowed},
	})
}

// pauseFor pauses a member for a random time between least and most.
func pauseFor(least, most time.Duration) func(*failoverClient, *harness.Member) {
	return func(r *failoverClient, m *harness.Member) {
		r.t.Helper()
		m.Pause()
		select {
		case <-r.t.Context().Done():
		case <-time.After(least + rand.N(most-least)):
		}
		m.Resume()
	}
}

// failureLimit is a failure and the longest pause that the client may see.
type failureLimit struct {
	failure
	allowed time.Duration
}

func surviveFailures(t *testing.T, r *failoverClient, failures []failureLimit) {
	t.Helper()
	gaps := make([][]time.Duration, len(failures))
	for i, s := range failures {
		gaps[i] = r.injectRounds(s.failure)
	}
	r.finishWithoutErrors()
	for i, s := range failures {
		reportPauses(t, s.name, gaps[i], s.allowed)
	}
}

// The same with network partitions: the leader is isolated, or its inbound or outbound
// traffic is dropped. No connection is reset; there is only silence.
func TestClientsSurviveNetworkPartitions(t *testing.T) {
	kit.Long(t)
	beside(t)
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	n := harness.InNetwork(t, 3)
	if n == nil {
		return
	}
	c := harness.Start(t, harness.Options{Network: n, Args: []string{"--log-level", "debug"}})
	mend := (*harness.Member).Heal
	surviveFailures(t, newFailoverClient(t, c, c.Members[0], failoverQueue), []failureLimit{
		{failure{"cut off", func(_ *failoverClient, m *harness.Member) { m.Isolate() }, mend}, silentAllowed},
		{failure{"hears nothing", func(_ *failoverClient, m *harness.Member) { m.DropInbound() }, mend}, silentAllowed},
		{failure{"is not heard", func(_ *failoverClient, m *harness.Member) { m.DropOutbound() }, mend}, silentAllowed},
	})
}

// Encryption between members does not delay the detection of a failure: a process that
// ended is detected through TLS as fast as without.
func TestClientsSurviveFailoverWithPeerTLS(t *testing.T) {
	kit.Long(t)
	beside(t)
	c, _, _ := start(t, harness.Settings{}, harness.PeerArgs(t)...)
	surviveFailures(t, newFailoverClient(t, c, c.Members[0], failoverQueue), []failureLimit{
		{failure{"kill -9, peer TLS", func(_ *failoverClient, m *harness.Member) { m.Kill() }, restart}, killAllowed},
	})
}
