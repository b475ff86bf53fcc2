package amqp

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/settlement"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// managementPeer is a peer with a pair of links to the management node of "orders".
func managementPeer(t *testing.T, b Broker, rights fsm.Rights, change ...func(*Config)) *peer {
	t.Helper()
	return managementPeerAt(t, b, rights, "orders/$management", change...)
}

func managementPeerAt(t *testing.T, b Broker, rights fsm.Rights, node string, change ...func(*Config)) *peer {
	t.Helper()
	p := loggedIn(t, b, append(change, func(c *Config) { c.Authorizer = fakeAuthorizer{Grant{Rights: rights}} })...)
	p.sender(0, node)
	p.receiver(1, node)
	p.credit(1, 0, 1000)
	return p
}

// manage makes one request and returns status, condition and body of the response.
func (p *peer) manage(id uint32, operation string, body wire.Map) (status, condition any, answer wire.Map) {
	p.Helper()
	request := requestMessage(wire.Properties{MessageID: uint64(id)}, wire.Map{{Key: "operation", Value: operation}}, body)
	const piece = 60 << 10
	for len(request) > piece {
		p.transfer(0, id, request[:piece], settled, more)
		request = request[piece:]
	}
	p.transfer(0, id, request, settled)
	r := p.response()
	answer, ok := r.body.(wire.Map)
	if !ok {
		p.Fatalf("%s: body %T", operation, r.body)
	}
	return r.properties.Get("statusCode"), r.properties.Get("errorCondition"), answer
}

// scheduled encodes a message that is to be enqueued at a time.
func scheduled(at any) []byte {
	b := section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(message.ScheduledEnqueueTimeKey), Value: at}})
	return section(b, wire.SectionData, []byte("x"))
}

func entries(messages ...[]byte) wire.Map {
	var list []any
	for _, m := range messages {
		list = append(list, wire.Map{{Key: "message", Value: m}, {Key: "message-id", Value: nil}})
	}
	return wire.Map{{Key: "messages", Value: list}}
}

func numbers(n ...int64) wire.Map {
	return wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: n}}}
}

func TestScheduleOnTheWire(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := managementPeer(t, h, fsm.Send)
	in := time.Now().Add(time.Hour)
	status, condition, body := p.manage(0, management.ScheduleOperation, entries(scheduled(in), scheduled(in.UnixMilli()), scheduled(int64(1))))
	got, ok := body.Get("sequence-numbers").(wire.Array)
	if status != int32(200) || condition != nil || !ok {
		t.Fatalf("status %v condition %v body %+v", status, condition, body)
	}
	if n, ok := got.Values.([]int64); !ok || len(n) != 3 || n[0] != 1 || n[1] != 2 || n[2] != 3 {
		t.Fatalf("numbers %T %v", got.Values, got.Values)
	}
	if c := h.counts("orders"); c.Scheduled != 2 || c.Active != 1 {
		t.Errorf("counts %+v: a time that has passed means now", c)
	}
	// All or none: 3 is not scheduled.
	status, condition, _ = p.manage(1, management.CancelOperation, numbers(1, 3))
	if c := h.counts("orders"); status != int32(404) || condition != wire.ConditionMessageNotFound || c.Scheduled != 2 {
		t.Errorf("status %v condition %v counts %+v", status, condition, c)
	}
	status, condition, body = p.manage(2, management.CancelOperation, numbers(2, 1))
	if c := h.counts("orders"); status != int32(200) || condition != nil || len(body) != 0 || c.Scheduled != 0 {
		t.Errorf("status %v condition %v counts %+v", status, condition, c)
	}
}

func TestMalformedScheduleRequestsAreRefused(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := managementPeer(t, h, fsm.Manage)
	in := time.Now().Add(time.Hour)
	plain := section(nil, wire.SectionData, []byte("x"))
	big := section(nil, wire.SectionData, make([]byte, 257<<10))
	for i, c := range []struct {
		operation string
		body      wire.Map
		status    int32
		condition wire.Symbol
	}{
		{management.ScheduleOperation, nil, 400, wire.ConditionArgumentError},
		{management.ScheduleOperation, entries(), 400, wire.ConditionArgumentError},
		{management.ScheduleOperation, entries(make([][]byte, message.BatchMessagesMax+1)...), 400, wire.ConditionArgumentError},
		{management.ScheduleOperation, wire.Map{{Key: "messages", Value: "none"}}, 400, wire.ConditionArgumentError},
		{management.ScheduleOperation, wire.Map{{Key: "messages", Value: []any{1}}}, 400, wire.ConditionArgumentError},
		{management.ScheduleOperation, entries(scheduled(in), plain), 400, wire.ConditionArgumentError},
		{management.ScheduleOperation, entries(scheduled(in), scheduled("noon")), 400, wire.ConditionInvalidField},
		{management.ScheduleOperation, entries(scheduled(in), []byte{1, 2, 3}), 400, wire.ConditionDecodeError},
		{management.ScheduleOperation, entries(scheduled(in), big), 400, wire.ConditionMessageSizeExceeded},
		{management.CancelOperation, nil, 400, wire.ConditionArgumentError},
		{management.CancelOperation, numbers(make([]int64, management.TokensMax+1)...), 400, wire.ConditionArgumentError},
		{management.CancelOperation, numbers(-1), 404, wire.ConditionMessageNotFound},
		{"com.microsoft:batch-delete-messages", nil, 400, wire.ConditionArgumentError},
		{"com.microsoft:batch-delete-messages", wire.Map{{Key: "message-count", Value: int32(0)}}, 400, wire.ConditionArgumentError},
		{"com.microsoft:batch-delete-messages", wire.Map{{Key: "message-count", Value: int32(1)}, {Key: "enqueued-time-utc", Value: "noon"}}, 400, wire.ConditionArgumentError},
	} {
		status, condition, _ := p.manage(uint32(i), c.operation, c.body)
		if status != c.status || condition != c.condition {
			t.Errorf("case %d, %s: status %v condition %v, want %d %s", i, c.operation, status, condition, c.status, c.condition)
		}
	}
	if c := h.counts("orders"); c != (fsm.Counts{}) {
		t.Errorf("something was stored: %+v", c)
	}
}

func TestNothingIsScheduledInADeadLetterQueue(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := managementPeerAt(t, h, fsm.Send, "orders/$deadletterqueue/$management")
	status, condition, _ := p.manage(0, management.ScheduleOperation, entries(scheduled(time.Now())))
	if c := h.counts("orders"); status != int32(400) || condition != wire.ConditionNotAllowed || c != (fsm.Counts{}) {
		t.Errorf("status %v condition %v counts %+v", status, condition, c)
	}
}

// The right to send allows scheduling and cancelling, the right to listen the rest (docs/service-bus-protocol.md#rights).
func TestRightsOfOperations(t *testing.T) {
	t.Parallel()
	for _, right := range []fsm.Rights{fsm.Send, fsm.Listen} {
		p := managementPeer(t, newFakeBroker("orders"), right)
		for i, c := range []struct {
			operation string
			needs     fsm.Rights
		}{
			{management.ScheduleOperation, fsm.Send},
			{management.CancelOperation, fsm.Send},
			{"com.microsoft:batch-delete-messages", fsm.Listen},
			{"com.microsoft:peek-message", fsm.Listen},
			{"com.microsoft:renew-lock", fsm.Listen},
			{"com.microsoft:update-disposition", fsm.Listen},
			{"com.microsoft:receive-by-sequence-number", fsm.Listen},
		} {
			status, _, _ := p.manage(uint32(i), c.operation, nil)
			if allowed := status != int32(401); allowed != (right == c.needs) {
				t.Errorf("%s with right %v alone: status %v", c.operation, right, status)
			}
		}
	}
}

// purger records the deletions that it was asked for.
type purger struct {
	*fakeBroker
	before fsm.Instant
	most   int
}

func (b *purger) Purge(at fsm.EntityRef, before fsm.Instant, most int, done func(fsm.Code, int)) {
	b.before, b.most = before, most
	b.fakeBroker.Purge(at, before, most, done)
}

func TestBatchDeleteDeletesWhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	h := &purger{fakeBroker: newFakeBroker("orders")}
	h.messages(t, "orders", 5)
	p := managementPeer(t, h, fsm.Listen)
	request := func(count, before any) wire.Map {
		return wire.Map{{Key: "message-count", Value: count}, {Key: "enqueued-time-utc", Value: before}}
	}
	const operation = "com.microsoft:batch-delete-messages"
	status, _, body := p.manage(0, operation, request(int32(2), time.Now().Add(time.Hour)))
	if n := body.Get("message-count"); status != int32(200) || n != int32(2) {
		t.Errorf("status %v, %T %v deleted", status, n, n)
	}
	status, condition, body := p.manage(1, operation, request(int32(2), time.UnixMilli(0)))
	if n := body.Get("message-count"); status != int32(204) || condition != nil || n != int32(0) || h.before != 1 {
		t.Errorf("before 1970: status %v, %v deleted, before %d", status, n, h.before)
	}
	status, _, body = p.manage(2, operation, wire.Map{{Key: "message-count", Value: int64(1 << 40)}})
	if n := body.Get("message-count"); status != int32(200) || n != int32(3) || h.most != management.PurgeMessagesMax || h.before != 0 {
		t.Errorf("all: status %v, %v deleted, %d asked for, before %d", status, n, h.most, h.before)
	}
	if c := h.counts("orders"); c.Active != 0 {
		t.Errorf("counts %+v", c)
	}
}

// A batch delete that names a session affects no other session, whoever holds it, and a malformed one deletes
// nothing.
func TestBatchDeleteInSession(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders")
	at := h.names["orders"]
	for _, session := range []string{"red", "blue", "red", "red"} {
		h.do(fsm.SendMessages{Entity: at.ID, Messages: []fsm.Message{{Session: session, HasSession: true}}})
	}
	p := managementPeer(t, h, fsm.Listen)
	id := uint32(0)
	deletes := func(body wire.Map, status, count int32) {
		t.Helper()
		got, condition, answer := p.manage(id, management.BatchDeleteOperation, body)
		id++
		if n := answer.Get(management.MessageCountKey); got != status || n != count {
			t.Errorf("%v: status %v (%v), %v deleted, want %d, %d", body, got, condition, n, status, count)
		}
	}
	in := func(session any) wire.Map {
		return wire.Map{{Key: management.MessageCountKey, Value: int32(100)}, {Key: management.SessionIDKey, Value: session}}
	}
	lock := h.do(fsm.AcceptSession{Entity: at.ID, Named: true, ID: "red"}).Session
	h.do(fsm.LockMessages{Address: fsm.Address{Entity: at.ID}, Max: 1, MaxBytes: 1, Session: lock})
	deletes(in("green"), 204, 0)
	deletes(in("red"), 200, 2)
	deletes(in("red"), 204, 0)
	if c := h.counts("orders"); c.Active != 2 || c.Locked != 1 {
		t.Fatalf("counts %+v: the locked message and that of the other session stay", c)
	}
	deletes(in("blue"), 200, 1)
	h.do(fsm.SendMessages{Entity: at.ID, Messages: slices.Repeat([]fsm.Message{{Session: "grey", HasSession: true}}, management.PurgeMessagesMax+1)})
	most := wire.Map{{Key: management.MessageCountKey, Value: int64(1 << 40)}, {Key: management.SessionIDKey, Value: "grey"}}
	deletes(most, 200, management.PurgeMessagesMax)
	deletes(most, 200, 1)
	for name, body := range map[string]any{
		"number":    in(int32(1)),
		"symbol":    in(wire.Symbol("red")),
		"too long":  in(strings.Repeat("x", message.NameCharactersMax+1)),
		"misspelt":  wire.Map{{Key: management.MessageCountKey, Value: int32(1)}, {Key: "sessionId", Value: "red"}},
		"twice":     wire.Map{{Key: management.MessageCountKey, Value: int32(1)}, {Key: management.SessionIDKey, Value: "red"}, {Key: wire.Symbol(management.SessionIDKey), Value: nil}},
		"other key": wire.Map{{Key: management.MessageCountKey, Value: int32(1)}, {Key: uint64(1), Value: "red"}},
		"no map":    []any{int32(1)},
	} {
		p.transfer(0, id, requestMessage(wire.Properties{MessageID: uint64(id)}, wire.Map{{Key: "operation", Value: management.BatchDeleteOperation}}, body), settled)
		id++
		r := p.response()
		if status, condition := r.properties.Get("statusCode"), r.properties.Get("errorCondition"); status != int32(400) || condition != wire.ConditionArgumentError {
			t.Errorf("%s: status %v, condition %v", name, status, condition)
		}
	}
	if c := h.counts("orders"); c.Locked != 1 {
		t.Errorf("counts %+v", c)
	}
}

// At an entity without sessions, a batch delete that names one is refused, instead of deleting everything.
func TestBatchDeleteWithoutSessions(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 2)
	p := managementPeer(t, h, fsm.Listen)
	body := wire.Map{{Key: management.MessageCountKey, Value: int32(100)}, {Key: management.SessionIDKey, Value: "red"}}
	if status, condition, _ := p.manage(0, management.BatchDeleteOperation, body); status != int32(400) || condition != wire.ConditionNotAllowed {
		t.Errorf("status %v, condition %v", status, condition)
	}
	if c := h.counts("orders"); c.Active != 2 {
		t.Errorf("counts %+v", c)
	}
}

// A request is counted as in flight until it is answered, as it may hold large messages.
func TestRequestsAreInFlight(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	s, p := piped(t, unansweringBroker{h})
	p.login()
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 10)
	c := onlyConn(t, s)
	inFlight := func() int {
		p.quiet()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.inFlightBytes
	}
	ask(p, 0, management.CancelOperation, numbers(7))
	p.response()
	if n := inFlight(); n != 0 {
		t.Errorf("%d bytes in flight with nothing to do", n)
	}
	token := message.UUIDFromToken(h.LockToken(fsm.EntityRef{Entity: h.names["orders"]}, fsm.LockID{Sequence: 1}))
	ask(p, 1, "com.microsoft:renew-lock", wire.Map{{Key: "lock-tokens", Value: wire.Array{Values: []wire.UUID{token}}}})
	if n := inFlight(); n < inFlightOverhead {
		t.Errorf("%d bytes in flight with a request that is not answered", n)
	}
}

func TestSDKSchedules(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	messages := func(bodies ...string) (all []*azservicebus.Message) {
		for _, b := range bodies {
			all = append(all, &azservicebus.Message{Body: []byte(b)})
		}
		return all
	}
	sequences, err := p.sender.ScheduleMessages(p.ctx, messages("a", "b", "c"), at, nil)
	p.must(err)
	if len(sequences) != 3 || sequences[0] != 1 || sequences[2] != 3 {
		t.Fatalf("numbers %v", sequences)
	}
	// On an ordinary send, the property has the same effect.
	p.must(p.sender.SendMessage(p.ctx, &azservicebus.Message{Body: []byte("d"), ScheduledEnqueueTime: &at}, nil))
	seen, err := p.receiver.PeekMessages(p.ctx, 10, nil)
	p.must(err)
	if len(seen) != 4 {
		t.Fatalf("peeked %d", len(seen))
	}
	for _, m := range seen {
		if m.State != azservicebus.MessageStateScheduled || m.ScheduledEnqueueTime == nil || !m.ScheduledEnqueueTime.Equal(at) {
			t.Errorf("%q is in state %v until %v", m.Body, m.State, m.ScheduledEnqueueTime)
		}
	}
	p.must(p.sender.CancelScheduledMessages(p.ctx, sequences[1:2], nil))
	if err := p.sender.CancelScheduledMessages(p.ctx, sequences[:2], nil); err == nil {
		t.Error("cancelled what is not there")
	}
	p.broker.advanceClock(time.Hour + time.Second)
	for i, m := range p.receive(p.receiver, 3) {
		if want := []string{"a", "c", "d"}[i]; string(m.Body) != want || *m.SequenceNumber <= 4 || m.State != azservicebus.MessageStateScheduled {
			t.Errorf("got %q with number %d in state %v, want %q with a new one", m.Body, *m.SequenceNumber, m.State, want)
		}
	}
	if err := p.sender.CancelScheduledMessages(p.ctx, sequences[:1], nil); err == nil {
		t.Error("cancelled what is active already")
	}
}

// The lifetime of a scheduled message starts at its activation (docs/requirements.md#e1).
func TestSDKScheduledMessageLivesFromActivation(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	at, life := time.Now().Add(time.Hour), time.Minute
	_, err := p.sender.ScheduleMessages(p.ctx, []*azservicebus.Message{{Body: []byte("a"), TimeToLive: &life}}, at, nil)
	p.must(err)
	p.broker.advanceClock(time.Hour + time.Second)
	m := p.receive(p.receiver, 1)[0]
	if m.EnqueuedTime.Before(at.Add(-time.Second)) || *m.TimeToLive != life || !m.ExpiresAt.Equal(m.EnqueuedTime.Add(life)) {
		t.Errorf("enqueued %v, lives %v until %v", m.EnqueuedTime, m.TimeToLive, m.ExpiresAt)
	}
}

func TestSDKDuplicatesAreDropped(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{
		LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresDuplicateDetection: true,
	}, "Orders")
	p := sdkPairOf(t, h, nil)
	p.send("a", "a", "b")
	id := "id-b"
	at := time.Now().Add(time.Hour)
	sequences, err := p.sender.ScheduleMessages(p.ctx, []*azservicebus.Message{{MessageID: &id}, {Body: []byte("new")}}, at, nil)
	p.must(err)
	if want := []int64{3, 4}; !slices.Equal(sequences, want) {
		t.Errorf("numbers %v, want %v: a duplicate has one that no message has", sequences, want)
	}
	again, err := p.sender.ScheduleMessages(p.ctx, []*azservicebus.Message{{MessageID: &id}, {MessageID: &id}}, at, nil)
	p.must(err)
	if want := []int64{5, 6}; !slices.Equal(again, want) {
		t.Errorf("numbers of duplicates alone %v, want %v", again, want)
	}
	if err := p.sender.CancelScheduledMessages(p.ctx, again[:1], nil); err == nil {
		t.Error("the number of a duplicate was cancelled, want a refusal: no message has it")
	}
	if c := h.counts("orders"); c.Active != 2 || c.Scheduled != 1 {
		t.Errorf("counts %+v: duplicates are accepted and dropped", c)
	}
	h.advanceClock(11 * time.Minute)
	p.send("a")
	if c := h.counts("orders"); c.Active != 3 {
		t.Errorf("counts %+v: the window has passed", c)
	}
}

func TestSDKDelayedAbandon(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	putOff := func(m *azservicebus.ReceivedMessage, value any) error {
		return p.receiver.AbandonMessage(p.ctx, m, &azservicebus.AbandonMessageOptions{
			PropertiesToModify: map[string]any{settlement.DeliveryTimeKey: value, "tried": "yes"},
		})
	}
	for name, way := range map[string]func(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage{
		"on the link":            func(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage { return m },
		"through the management": func(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage { return byToken(m) },
	} {
		p.send(name)
		m := p.receive(p.receiver, 1)[0]
		now := time.Now().Add(p.broker.clockOffset())
		until := now.Add(time.Hour)
		p.must(putOff(way(m), until.UnixMilli()))
		if c := p.broker.counts("orders"); c.Scheduled != 1 || c.Active != 0 {
			t.Errorf("%s: counts %+v", name, c)
		}
		p.broker.advanceClock(time.Hour + time.Second)
		again := p.receive(p.receiver, 1)[0]
		if *again.SequenceNumber != *m.SequenceNumber || again.DeliveryCount != 2 || len(again.ApplicationProperties) != 1 || again.ApplicationProperties["tried"] != "yes" {
			t.Errorf("%s: number %d count %d properties %v", name, *again.SequenceNumber, again.DeliveryCount, again.ApplicationProperties)
		}
		p.must(p.receiver.CompleteMessage(p.ctx, again, nil))
	}
}

// An invalid delivery time is refused, and the lock does not change.
func TestDeliveryTimeFaults(t *testing.T) {
	t.Parallel()
	h, p := receiving(t, 1)
	yes := true
	described := func(descriptor string, value any) *wire.Modified {
		return &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: wire.Described{Descriptor: wire.Symbol(descriptor), Value: value}}}}
	}
	for name, state := range map[string]*wire.Modified{
		"timespan": described("com.microsoft:timespan", int64(1)),
		"negative": described("com.microsoft:datetime-offset", int64(math.MinInt64)),
		"overflow": described("com.microsoft:datetime-offset", int64(math.MaxInt64)),
		"no long":  described("com.microsoft:datetime-offset", "noon"),
		"text":     {MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: "noon"}}},
		"too far":  {MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: time.Now().Add(settlement.DeliveryTimeMax + time.Minute)}}},
		"deferred": {MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: time.Now()}}, UndeliverableHere: &yes},
	} {
		p.send(dispose(0, 0, false, state))
		if e := p.refused(0, wire.RoleSender, wire.ConditionNotAllowed); h.counts("orders").Locked != 1 {
			t.Errorf("%s: %v and the lock is gone", name, e)
		}
	}
	at := time.Now().Add(settlement.DeliveryTimeMax - time.Minute)
	p.send(dispose(0, 0, false, &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: at}}}))
	if d := expect[*wire.Disposition](p); typeName(d.State) != "modified" || h.counts("orders").Scheduled != 1 {
		t.Errorf("state %v, counts %+v", d.State, h.counts("orders"))
	}
}

// TestDeliveryTimeOfDotNet checks that a delivery time may be a DateTimeOffset, the usual type of .NET: over the link, through
// the management node and in a transaction.
func TestDeliveryTimeOfDotNet(t *testing.T) {
	t.Parallel()
	b := newTransactionLog("orders")
	b.messages(t, "orders", 3)
	p := transactionPeer(t, b)
	p.receiver(2, "orders")
	p.credit(2, 0, 3)
	var tokens []any
	for range 3 {
		tokens = append(tokens, message.UUIDFromToken(fsm.LockToken(expect[*wire.Transfer](p).DeliveryTag)))
	}
	due := fsm.Instant(time.Now().Add(time.Hour).UnixMilli())
	delay := wire.Map{{Key: wire.Symbol(settlement.DeliveryTimeKey), Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:datetime-offset"), Value: message.Ticks(due)}}}
	p.send(dispose(0, 0, false, &wire.Modified{MessageAnnotations: delay}))
	if d := expect[*wire.Disposition](p); typeName(d.State) != "modified" {
		t.Errorf("over the link: %+v", d.State)
	}
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 10)
	status, condition, _ := p.manage(0, management.DispositionOperation, wire.Map{
		{Key: "disposition-status", Value: "abandoned"}, {Key: "lock-tokens", Value: tokens[1:2]}, {Key: "properties-to-modify", Value: delay},
	})
	if status != int32(200) {
		t.Errorf("through the management node: %v %v", status, condition)
	}
	txn := p.declare(1)
	p.settleIn(txn, 2, 2, &wire.Modified{MessageAnnotations: delay})
	expect[*wire.Disposition](p)
	p.commit(2, txn)
	if c := b.counts("orders"); c.Scheduled != 3 {
		t.Errorf("before the time: %+v, want 3 scheduled", c)
	}
	b.advanceClock(time.Hour + time.Second)
	if c := b.counts("orders"); c.Active != 3 {
		t.Errorf("after the time: %+v, want 3 active", c)
	}
}

// TestSessionsUpdatedAfterATimeOfDotNet checks that last-updated-time may be a DateTimeOffset, and that other described values
// are refused.
func TestSessionsUpdatedAfterATimeOfDotNet(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders")
	p := managementPeer(t, h, 7)
	for id, c := range []struct {
		descriptor string
		want       int32
	}{{"com.microsoft:datetime-offset", 204}, {"com.microsoft:timespan", 400}} {
		status, _, _ := p.manage(uint32(id), management.ListSessionsOperation, wire.Map{
			{Key: "last-updated-time", Value: wire.Described{Descriptor: wire.Symbol(c.descriptor), Value: message.Ticks(1)}},
			{Key: "skip", Value: int32(0)},
			{Key: "top", Value: int32(10)},
		})
		if status != c.want {
			t.Errorf("%s: status %v, want %d", c.descriptor, status, c.want)
		}
	}
}

// TestSessionsUpdatedAfterAFarFuture checks that the largest time that clients have means no time: all sessions with messages are
// listed.
func TestSessionsUpdatedAfterAFarFuture(t *testing.T) {
	t.Parallel()
	h := newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10, RequiresSession: true}, "orders")
	h.do(fsm.SendMessages{Entity: h.names["orders"].ID, Messages: []fsm.Message{{Session: "s", HasSession: true}}})
	p := managementPeer(t, h, 7)
	for id, c := range []struct {
		millis int64
		want   int32
	}{{253402300799998, 204}, {253402300799999, 200}, {253402300800000, 200}} {
		status, _, _ := p.manage(uint32(id), management.ListSessionsOperation, wire.Map{
			{Key: "last-updated-time", Value: time.UnixMilli(c.millis)},
			{Key: "skip", Value: int32(0)},
			{Key: "top", Value: int32(10)},
		})
		if status != c.want {
			t.Errorf("%d: status %v, want %d", c.millis, status, c.want)
		}
	}
}
