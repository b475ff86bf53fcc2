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
	"github.com/peeklock/peeklock/test/kit"
)

// Events that are due at a time happen once, whichever member leads then: each test here has a queue
// with many of them, kills the leader after the first ones, and then all members.

const (
	timedMessages = 2000             // messages with an event
	timedBatch    = 100              // of them in one request
	timedSpread   = 12 * time.Second // from the first to the last event
	timedLead     = 4 * time.Second  // until the first event: enough to send all messages
	timedCase     = 10 * time.Minute // for one try of a test
	// When the machine is too slow for these times, a test is repeated with times multiplied by this.
	paceFactor = 4
	paceMost   = 16
)

// timedRun is three members, the first of which leads the queue.
type timedRun struct {
	*harness.Cluster
	*testing.T
	ctx    context.Context
	leader *harness.Member
	begun  time.Time
	pace   int // 1 to paceMost, by which lead and spread are longer
}

// tooLate ends a try that was too slow to prepare its messages before they were due: its results mean nothing.
type tooLate struct{}

// runTimed runs a test, and repeats it with more time while the machine is too slow for it.
func runTimed(t *testing.T, more harness.Fields, run func(timedRun)) {
	t.Helper()
	for pace := 1; ; pace *= paceFactor {
		c, leader, _ := start(t, harness.Settings{LockDuration: 5 * time.Minute, More: more})
		if (timedRun{Cluster: c, T: t, leader: leader, pace: pace}).try(run) {
			return
		}
		for _, m := range c.Members {
			m.Kill() // they must not slow down the next ones
		}
	}
}

// try reports whether the test was run to its end.
func (v timedRun) try(run func(timedRun)) (done bool) {
	v.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, late := r.(tooLate); !late {
				panic(r)
			}
			v.Logf("was too late with %d times the time", v.pace)
		}
	}()
	ctx, cancel := context.WithTimeout(v.Context(), timedCase)
	defer cancel()
	v.ctx, v.begun = ctx, time.Now()
	run(v)
	return true
}

// inTime ends the try when a message is already due.
func (v timedRun) inTime(i int) {
	v.Helper()
	if time.Now().Before(v.due(i)) {
		return
	}
	v.late("what had to be done before message %d was due", i)
}

func (v timedRun) late(format string, args ...any) {
	v.Helper()
	if v.pace >= paceMost {
		v.Fatalf("the machine is too slow for this test: "+format, args...)
	}
	panic(tooLate{})
}

// due is the time of the event of a message.
func (v timedRun) due(i int) time.Time {
	return v.begun.Add(time.Duration(v.pace) * (timedLead + time.Duration(i/timedBatch*timedBatch)*timedSpread/timedMessages))
}

// waitDone waits until all events have happened and every member has the counts.
func (v timedRun) waitDone(want harness.Counts) {
	v.Helper()
	harness.Eventually(v.T, max(0, time.Until(v.due(timedMessages-1)))+confirmsWithin, "all that is due", func(ctx context.Context) error {
		q, err := v.Members[0].Queue(ctx, queue)
		if err == nil && q.Counts != want {
			err = fmt.Errorf("counts %+v, want %+v", q.Counts, want)
		}
		return err
	})
	v.WaitCounts(v.T, queue, want)
}

// client opens a client at a member that does not lead.
func (v timedRun) client() *azservicebus.Client {
	v.Helper()
	c, err := azservicebus.NewClientFromConnectionString(v.Others(v.leader)[0].ConnectionString(), nil)
	v.must("new client", err)
	v.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (v timedRun) sender(queue string) *azservicebus.Sender {
	v.Helper()
	s, err := v.client().NewSender(queue, nil)
	v.must("new sender", err)
	return s
}

func (v timedRun) must(what string, err error) {
	v.Helper()
	if err != nil {
		v.Fatalf("%s: %v", what, err)
	}
}

// batch sends messages in one batch.
func (v timedRun) batch(s *azservicebus.Sender, messages []*azservicebus.Message) {
	v.Helper()
	b, err := s.NewMessageBatch(v.ctx, nil)
	v.must("new batch", err)
	for _, m := range messages {
		v.must("add", b.AddMessage(m, nil))
	}
	v.must("send", s.SendMessageBatch(v.ctx, b, nil))
}

// messages are the messages of one request, each modified by shape.
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

// waitBegun waits until some of the events have happened, but not all.
func (v timedRun) waitBegun(what string, happened func(harness.Counts) uint64) {
	v.Helper()
	harness.Eventually(v.T, time.Duration(v.pace)*(timedLead+timedSpread)+confirmsWithin, what, func(ctx context.Context) error {
		q, err := v.Others(v.leader)[0].Queue(ctx, queue)
		if err == nil && happened(q.Counts) == 0 {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		if err == nil && happened(q.Counts) >= timedMessages*3/4 {
			v.late("%s are almost over: %+v", what, q.Counts)
		}
		return err
	})
}

// killLeader kills the leader, waits until the others have elected another one, calls meanwhile,
// and starts the killed member again.
func (v timedRun) killLeader(meanwhile func()) {
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

// killAll kills all members at once and starts them again.
func (v timedRun) killAll() {
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

// receiveAll receives n messages, checks that no more arrive, and calls look for each.
func (v timedRun) receiveAll(o *azservicebus.ReceiverOptions, n int, look func(*azservicebus.ReceivedMessage)) {
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

// Scheduled messages arrive once each, not before their time, and cancelled ones never, when
// the leader and then all members are killed meanwhile.
func TestSchedulesSurviveKills(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	runTimed(t, nil, scheduledOverKills)
}

func scheduledOverKills(v timedRun) {
	s := v.sender(queue)
	var numbers []int64
	for from := 0; from < timedMessages; from += timedBatch {
		some, err := s.ScheduleMessages(v.ctx, messages(from, nil), v.due(from), nil)
		v.must("schedule", err)
		numbers = append(numbers, some...)
	}
	cancelled := map[string]bool{}
	cancel := func(from, n int) {
		err := s.CancelScheduledMessages(v.ctx, numbers[from:from+n], nil)
		if err != nil {
			v.inTime(from)
		}
		v.must("cancel", err)
		for i := range n {
			cancelled[fmt.Sprintf("m%05d", from+i)] = true
		}
	}
	cancel(0, 50)
	v.inTime(0)
	v.waitBegun("the first activations", func(c harness.Counts) uint64 { return c.Active })
	v.killLeader(func() { cancel(timedMessages-100, 50) })
	v.killAll()
	v.waitDone(harness.Counts{Active: timedMessages - 100})
	v.Logf("all active %v after the begin, the last was due %v after", time.Since(v.begun).Round(time.Millisecond), v.due(timedMessages-1).Sub(v.begun))
	var given []int64
	v.receiveAll(nil, timedMessages-100, func(m *azservicebus.ReceivedMessage) {
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
	if first, last := given[0], given[len(given)-1]; first <= numbers[timedMessages-1] || last-first != int64(len(given)-1) {
		v.Errorf("new numbers go from %d to %d, the old ones to %d: each message is to take one number", first, last, numbers[timedMessages-1])
	}
}

// Messages that expire are dead-lettered once each, when the leader and then all members
// are killed meanwhile.
func TestExpirySurvivesKills(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	runTimed(t, harness.Fields{"deadLetteringOnMessageExpiration": true}, expiringOverKills)
}

func expiringOverKills(v timedRun) {
	s := v.sender(queue)
	for from := 0; from < timedMessages; from += timedBatch {
		v.batch(s, messages(from, func(i int, m *azservicebus.Message) {
			life := max(time.Millisecond, time.Until(v.due(i)))
			m.TimeToLive = &life
		}))
	}
	v.inTime(0)
	v.waitBegun("the first expiries", func(c harness.Counts) uint64 { return c.DeadLetter })
	v.killLeader(nil)
	v.killAll()
	v.waitDone(harness.Counts{DeadLetter: timedMessages})
	v.Logf("all dead-lettered %v after the begin, the last was due %v after", time.Since(v.begun).Round(time.Millisecond), v.due(timedMessages-1).Sub(v.begun))
	v.receiveAll(&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}, timedMessages, func(m *azservicebus.ReceivedMessage) {
		if m.DeadLetterReason == nil || *m.DeadLetterReason != "TTLExpiredException" {
			v.Errorf("%s has the reason %v", m.MessageID, m.DeadLetterReason)
		}
	})
}

// Messages that are abandoned with a delay return once each, not before their time, under
// their sequence numbers and with their failed deliveries, when the leader and then all members are killed meanwhile.
func TestDelayedAbandonSurvivesKills(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	runTimed(t, nil, delayedOverKills)
}

func delayedOverKills(v timedRun) {
	s := v.sender(queue)
	for from := 0; from < timedMessages; from += timedBatch {
		v.batch(s, messages(from, nil))
	}
	abandonDelayed(v)
	v.inTime(0)
	v.waitBegun("the first returns", func(c harness.Counts) uint64 { return c.Active })
	v.killLeader(nil)
	v.killAll()
	v.waitDone(harness.Counts{Active: timedMessages})
	v.Logf("all back %v after the begin, the last was due %v after", time.Since(v.begun).Round(time.Millisecond), v.due(timedMessages-1).Sub(v.begun))
	v.receiveAll(nil, timedMessages, func(m *azservicebus.ReceivedMessage) { // in any order: the client releases some between its calls
		if want := fmt.Sprintf("m%05d", *m.SequenceNumber-1); m.MessageID != want || m.DeliveryCount != 2 {
			v.Errorf("%s came with number %d, which is that of %s, delivery count %d, want 2", m.MessageID, *m.SequenceNumber, want, m.DeliveryCount)
		}
	})
}

// abandonDelayed receives all messages of the queue and abandons each with a delay until its time.
func abandonDelayed(v timedRun) {
	v.Helper()
	conn, err := amqp.Dial(v.ctx, "amqp://"+v.Others(v.leader)[0].AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)})
	v.must("dial", err)
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(v.ctx, nil)
	v.must("new session", err)
	r, err := session.NewReceiver(v.ctx, queue, &amqp.ReceiverOptions{Credit: 500, SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	v.must("new receiver", err)
	for i := range timedMessages {
		m, err := r.Receive(v.ctx, nil)
		v.must("receive", err)
		v.must("put off", r.ModifyMessage(v.ctx, m, &amqp.ModifyMessageOptions{
			DeliveryFailed: true, Annotations: amqp.Annotations{"x-opt-delivery-time": v.due(i)},
		}))
	}
	// In this settlement mode no answer tells when the broker has processed it.
	harness.Eventually(v.T, confirmsWithin, "all put off", func(ctx context.Context) error {
		q, err := v.Others(v.leader)[0].Queue(ctx, queue)
		if err == nil && q.Counts.Locked > 0 {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		return err
	})
}

// Message ids are remembered when the leader and all members are killed, as long
// as the duplicate detection window and no longer.
func TestDuplicateDetectionSurvivesKills(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	const window = 10 * time.Minute
	runTimed(t, harness.Fields{"requiresDuplicateDetection": true, "duplicateDetectionHistoryTimeWindow": window.String()}, duplicatesOverKills)
}

func duplicatesOverKills(v timedRun) {
	const brief = 20 * time.Second // the shortest window that a queue may have
	v.CreateQueue(v.T, "brief", harness.Settings{More: harness.Fields{
		"requiresDuplicateDetection": true, "duplicateDetectionHistoryTimeWindow": brief.String(),
	}})
	sendAll := func() {
		s := v.sender(queue)
		for from := 0; from < timedMessages; from += timedBatch {
			v.batch(s, messages(from, nil))
		}
	}
	begun := time.Now()
	v.batch(v.sender("brief"), messages(0, nil))
	sendAll()
	v.killLeader(sendAll)
	v.WaitCounts(v.T, queue, harness.Counts{Active: timedMessages})
	v.killAll()
	sendAll()
	v.WaitCounts(v.T, queue, harness.Counts{Active: timedMessages})
	v.receiveAll(nil, timedMessages, func(*azservicebus.ReceivedMessage) {})

	s := v.sender("brief")
	harness.Eventually(v.T, brief+confirmsWithin, "the brief window to end", func(ctx context.Context) error {
		v.batch(s, messages(0, nil))
		q, err := v.Others(v.leader)[0].Queue(ctx, "brief")
		if err == nil && q.Counts.Active != 2*timedBatch {
			err = fmt.Errorf("counts %+v", q.Counts)
		}
		return err
	})
	if took := time.Since(begun); took < brief {
		v.Errorf("ids were forgotten after %v, the window is %v", took, brief)
	}
}
