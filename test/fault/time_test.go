package fault

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

// What is to happen at a time happens once, whoever leads then: each test here has a queue
// full of it, kills the leader when the first of it has happened, and then all members.

const (
	timed      = 2000             // messages that something is to happen to
	timedBatch = 100              // of them in one request
	spread     = 12 * time.Second // from the first to the last of them
	lead       = 4 * time.Second  // until the first: enough to send all of them
	timedCase  = 4 * time.Minute  // for one test
)

// timing is three members, the first of which leads the queue.
type timing struct {
	*harness.Cluster
	*testing.T
	ctx    context.Context
	leader *harness.Member
	begun  time.Time
}

func startTiming(t *testing.T, more harness.Fields) timing {
	t.Helper()
	c, leader, _ := start(t, harness.Settings{LockDuration: 5 * time.Minute, More: more})
	ctx, cancel := context.WithTimeout(t.Context(), timedCase)
	t.Cleanup(cancel)
	return timing{Cluster: c, T: t, ctx: ctx, leader: leader, begun: time.Now()}
}

// due is the time of one of the messages.
func (v timing) due(i int) time.Time {
	return v.begun.Add(lead + time.Duration(i/timedBatch*timedBatch)*spread/timed)
}

// client opens a client at a member that does not lead.
func (v timing) client() *azservicebus.Client {
	v.Helper()
	c, err := azservicebus.NewClientFromConnectionString(v.Others(v.leader)[0].ConnectionString(), nil)
	v.must("new client", err)
	v.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (v timing) sender(queue string) *azservicebus.Sender {
	v.Helper()
	s, err := v.client().NewSender(queue, nil)
	v.must("new sender", err)
	return s
}

func (v timing) must(what string, err error) {
	v.Helper()
	if err != nil {
		v.Fatalf("%s: %v", what, err)
	}
}

// batch sends messages in one batch.
func (v timing) batch(s *azservicebus.Sender, messages []*azservicebus.Message) {
	v.Helper()
	b, err := s.NewMessageBatch(v.ctx, nil)
	v.must("new batch", err)
	for _, m := range messages {
		v.must("add", b.AddMessage(m, nil))
	}
	v.must("send", s.SendMessageBatch(v.ctx, b, nil))
}

// messages are those of one request, each shaped by what the test wants.
func messages(from int, shape func(i int, m *azservicebus.Message)) []*azservicebus.Message {
	all := make([]*azservicebus.Message, timedBatch)
	for i := range all {
		id := fmt.Sprintf("m%05d", from+i)
		all[i] = &azservicebus.Message{MessageID: &id, Body: []byte("body of " + id)}
		if shape != nil {
			shape(from+i, all[i])
		}
	}
	return all
}

// begins waits until something has happened, but not all of it.
func (v timing) begins(what string, happened func(harness.Counts) uint64) {
	v.Helper()
	harness.Eventually(v.T, lead+spread, what, func(ctx context.Context) error {
		q, err := v.Others(v.leader)[0].Queue(ctx, queue)
		if err == nil && happened(q.Counts) == 0 {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		if err == nil && happened(q.Counts) >= timed*3/4 {
			v.Fatalf("%s: it is almost over, the machine is too slow for this test: %+v", what, q.Counts)
		}
		return err
	})
}

// crash kills the leader, waits until the others have another one, does something there,
// and brings the killed one back.
func (v timing) crash(meanwhile func()) {
	v.Helper()
	v.leader.Kill()
	at := time.Now()
	v.WaitLed(v.T)
	v.Logf("leader killed %v after the begin, another one leads %v later", at.Sub(v.begun).Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
	if meanwhile != nil {
		meanwhile()
	}
	v.leader.Start()
	v.leader.WaitReady()
}

// blackout kills all members at once and starts them again.
func (v timing) blackout() {
	v.Helper()
	for _, m := range v.Members {
		m.Kill()
	}
	at := time.Now()
	for _, m := range v.Members {
		m.Start()
	}
	for _, m := range v.Members {
		m.WaitReady()
	}
	v.WaitLed(v.T)
	v.Logf("all killed %v after the begin, back after %v", at.Sub(v.begun).Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
}

// all receives n messages, sees that nothing more comes, and shows each to look.
func (v timing) all(o *azservicebus.ReceiverOptions, n int, look func(*azservicebus.ReceivedMessage)) {
	v.Helper()
	r, err := v.client().NewReceiverForQueue(queue, o)
	v.must("new receiver", err)
	seen := map[string]bool{}
	for len(seen) < n {
		some, err := r.ReceiveMessages(v.ctx, n-len(seen), nil)
		if err != nil {
			v.Fatalf("receive, %d of %d so far: %v", len(seen), n, err)
		}
		for _, m := range some {
			if seen[m.MessageID] {
				v.Errorf("%s came twice", m.MessageID)
			}
			if seen[m.MessageID] = true; string(m.Body) != "body of "+m.MessageID {
				v.Errorf("%s came with the body %q", m.MessageID, m.Body)
			}
			look(m)
		}
	}
	ctx, cancel := context.WithTimeout(v.ctx, time.Second)
	defer cancel()
	if more, _ := r.ReceiveMessages(ctx, 1, nil); len(more) > 0 {
		v.Errorf("and %s came, which was one too many", more[0].MessageID)
	}
}

// Scheduled messages come once each, not before their time, and cancelled ones never, when
// the leader dies among them and then all members do.
func TestLeaderIsKilledWithMessagesScheduled(t *testing.T) {
	v := startTiming(t, nil)
	s := v.sender(queue)
	var numbers []int64
	for from := 0; from < timed; from += timedBatch {
		some, err := s.ScheduleMessages(v.ctx, messages(from, nil), v.due(from), nil)
		v.must("schedule", err)
		numbers = append(numbers, some...)
	}
	cancelled := map[string]bool{}
	cancel := func(from, n int) {
		v.must("cancel", s.CancelScheduledMessages(v.ctx, numbers[from:from+n], nil))
		for i := range n {
			cancelled[fmt.Sprintf("m%05d", from+i)] = true
		}
	}
	cancel(0, 50)
	v.begins("the first activations", func(c harness.Counts) uint64 { return c.Active })
	v.crash(func() { cancel(timed-100, 50) })
	v.blackout()
	v.WaitCounts(t, queue, harness.Counts{Active: timed - 100})
	v.Logf("all active %v after the begin, the last was due %v after", time.Since(v.begun).Round(time.Millisecond), v.due(timed-1).Sub(v.begun))
	var given []int64
	v.all(nil, timed-100, func(m *azservicebus.ReceivedMessage) {
		var i int
		if _, err := fmt.Sscanf(m.MessageID, "m%05d", &i); err != nil || cancelled[m.MessageID] {
			v.Errorf("%s came: it was cancelled", m.MessageID)
		}
		if m.EnqueuedTime.Before(v.due(i).Truncate(time.Millisecond)) {
			v.Errorf("%s was enqueued %v before its time", m.MessageID, v.due(i).Sub(*m.EnqueuedTime))
		}
		given = append(given, *m.SequenceNumber)
	})
	slices.Sort(given)
	if first, last := given[0], given[len(given)-1]; first <= numbers[timed-1] || last-first != int64(len(given)-1) {
		v.Errorf("new numbers go from %d to %d, the old ones to %d: each message is to take one number", first, last, numbers[timed-1])
	}
}

// Messages that expire are dead-lettered once each, when the leader dies among them and
// then all members do.
func TestLeaderIsKilledWithMessagesExpiring(t *testing.T) {
	v := startTiming(t, harness.Fields{"deadLetteringOnMessageExpiration": true})
	s := v.sender(queue)
	for from := 0; from < timed; from += timedBatch {
		v.batch(s, messages(from, func(i int, m *azservicebus.Message) {
			life := max(time.Millisecond, time.Until(v.due(i)))
			m.TimeToLive = &life
		}))
	}
	v.begins("the first expiries", func(c harness.Counts) uint64 { return c.DeadLetter })
	v.crash(nil)
	v.blackout()
	v.WaitCounts(t, queue, harness.Counts{DeadLetter: timed})
	v.Logf("all dead-lettered %v after the begin, the last was due %v after", time.Since(v.begun).Round(time.Millisecond), v.due(timed-1).Sub(v.begun))
	v.all(&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}, timed, func(m *azservicebus.ReceivedMessage) {
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" {
			v.Errorf("%s has the reason %v", m.MessageID, m.DeadLetterReason)
		}
	})
}

// Messages put off with their abandonment come back once each, not before their time, under
// their numbers, with their attempts, when the leader dies among them and then all members do.
func TestLeaderIsKilledWithMessagesPutOff(t *testing.T) {
	v := startTiming(t, nil)
	s := v.sender(queue)
	for from := 0; from < timed; from += timedBatch {
		v.batch(s, messages(from, nil))
	}
	putOff(v)
	v.begins("the first returns", func(c harness.Counts) uint64 { return c.Active })
	v.crash(nil)
	v.blackout()
	v.WaitCounts(t, queue, harness.Counts{Active: timed})
	v.Logf("all back %v after the begin, the last was due %v after", time.Since(v.begun).Round(time.Millisecond), v.due(timed-1).Sub(v.begun))
	v.all(nil, timed, func(m *azservicebus.ReceivedMessage) { // in no strict order: the client releases some between its calls
		if want := fmt.Sprintf("m%05d", *m.SequenceNumber-1); m.MessageID != want || m.DeliveryCount != 2 {
			v.Errorf("%s came with number %d, which is that of %s, delivery count %d, want 2", m.MessageID, *m.SequenceNumber, want, m.DeliveryCount)
		}
	})
}

// putOff receives all messages of the queue and abandons each until its time.
func putOff(v timing) {
	v.Helper()
	conn, err := amqp.Dial(v.ctx, "amqp://"+v.Others(v.leader)[0].AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	v.must("dial", err)
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(v.ctx, nil)
	v.must("new session", err)
	r, err := session.NewReceiver(v.ctx, queue, &amqp.ReceiverOptions{Credit: 500, SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	v.must("new receiver", err)
	for i := range timed {
		m, err := r.Receive(v.ctx, nil)
		v.must("receive", err)
		v.must("put off", r.ModifyMessage(v.ctx, m, &amqp.ModifyMessageOptions{
			DeliveryFailed: true, Annotations: amqp.Annotations{"x-opt-delivery-time": v.due(i)},
		}))
	}
	// Settled first, nothing says when they arrived.
	harness.Eventually(v.T, confirmsWithin, "all put off", func(ctx context.Context) error {
		q, err := v.Others(v.leader)[0].Queue(ctx, queue)
		if err == nil && q.Counts.Locked > 0 {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		return err
	})
}

// Message ids are remembered over the death of the leader and of all members, for as long
// as their window says and no longer.
func TestLeaderIsKilledWithinTheDuplicateWindow(t *testing.T) {
	const window, brief = 10 * time.Minute, 20 * time.Second // the shortest one that a queue may have
	v := startTiming(t, harness.Fields{"requiresDuplicateDetection": true, "duplicateDetectionHistoryTimeWindow": window.String()})
	v.CreateQueue(t, "brief", harness.Settings{More: harness.Fields{
		"requiresDuplicateDetection": true, "duplicateDetectionHistoryTimeWindow": brief.String(),
	}})
	sendAll := func() {
		s := v.sender(queue)
		for from := 0; from < timed; from += timedBatch {
			v.batch(s, messages(from, nil))
		}
	}
	begun := time.Now()
	v.batch(v.sender("brief"), messages(0, nil))
	sendAll()
	v.crash(sendAll)
	v.WaitCounts(t, queue, harness.Counts{Active: timed})
	v.blackout()
	sendAll()
	v.WaitCounts(t, queue, harness.Counts{Active: timed})
	v.all(nil, timed, func(*azservicebus.ReceivedMessage) {})

	s := v.sender("brief")
	harness.Eventually(t, 2*brief, "the brief window to end", func(ctx context.Context) error {
		v.batch(s, messages(0, nil))
		q, err := v.Others(v.leader)[0].Queue(ctx, "brief")
		if err == nil && q.Counts.Active != 2*timedBatch {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		return err
	})
	if took := time.Since(begun); took < brief {
		t.Errorf("ids were forgotten after %v, the window is %v", took, brief)
	}
}
