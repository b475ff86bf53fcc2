package management

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// generous is a broker that answers every request with as much as it may.
type generous struct {
	Broker
	payload []byte
}

func (b *generous) deliveries(n int) []fsm.Delivery {
	found := make([]fsm.Delivery, n)
	for i := range found {
		found[i] = fsm.Delivery{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1}, Payload: b.payload}
	}
	return found
}

func codesOf(n int) []fsm.Code { return make([]fsm.Code, n) }

func (*generous) ParseLockToken(_ fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool) {
	return fsm.LockID{Sequence: fsm.SequenceNumber(token[0])<<8 | fsm.SequenceNumber(token[1]), Epoch: 1}, true
}
func (*generous) LockToken(fsm.EntityRef, fsm.LockID) fsm.LockToken { return fsm.LockToken{} }
func (*generous) Settle(_ fsm.EntityRef, s []fsm.Settlement, done func([]fsm.Code)) {
	done(codesOf(len(s)))
}

func (*generous) Renew(_ fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	done(codesOf(len(locks)), make([]fsm.Instant, len(locks)))
}

func (b *generous) Fetch(_ fsm.EntityRef, numbers []fsm.SequenceNumber, _ bool, done func(fsm.Code, []fsm.Delivery)) {
	done(fsm.OK, b.deliveries(len(numbers)))
}

func (b *generous) Peek(_ context.Context, _ fsm.EntityRef, _ fsm.SequenceNumber, most, mostBytes int) ([]fsm.Delivery, error) {
	return b.deliveries(min(most, mostBytes/len(b.payload))), nil
}

func (b *generous) PeekSession(ctx context.Context, at fsm.EntityRef, _ string, from fsm.SequenceNumber, most, mostBytes int) ([]fsm.Delivery, error) {
	return b.Peek(ctx, at, from, most, mostBytes)
}

func (*generous) Sessions(_ context.Context, _ fsm.EntityRef, _ fsm.Instant, _, most int) ([]string, error) {
	names := make([]string, most)
	for i := range names {
		names[i] = strings.Repeat("😀", message.NameCharactersMax)
	}
	return names, nil
}

func (*generous) Schedule(_ fsm.EntityRef, m []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	done(fsm.OK, make([]fsm.SequenceNumber, len(m)))
}

func (*generous) CancelScheduled(_ fsm.EntityRef, _ []fsm.SequenceNumber, done func(fsm.Code)) {
	done(fsm.OK)
}

func (*generous) Purge(_ fsm.EntityRef, _ fsm.Instant, most int, done func(fsm.Code, int)) {
	done(fsm.OK, most)
}
func (*generous) AddRule(context.Context, fsm.EntityRef, fsm.Rule) error  { return nil }
func (*generous) RemoveRule(context.Context, fsm.EntityRef, string) error { return nil }
func (*generous) ListRules(_ context.Context, _ fsm.EntityRef, _, most int) ([]fsm.Rule, error) {
	rules := make([]fsm.Rule, most)
	for i := range rules {
		rules[i] = fsm.Rule{Name: strings.Repeat("n", 50), Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: strings.Repeat("😀", 1024)}}}
	}
	return rules, nil
}

// heldConn is a connection that holds every session, and counts what the Manager holds.
type heldConn struct{ holder }

func (*heldConn) HeldSession(fsm.EntityID, string, bool, string) (Session, bool) {
	return fullSession{}, false
}
func (*heldConn) CountSettled([]fsm.Settlement, []fsm.Code)                {}
func (*heldConn) MemoryRefusal() refusal.Cause                             { return refusal.Cause{} }
func (*heldConn) BusyReason(_ fsm.Code, cause refusal.Cause) refusal.Cause { return cause }

// fullSession is a session with the largest state.
type fullSession struct{ Session }

const stateMax = 256 << 10

func (fullSession) Name() string                              { return "s" }
func (fullSession) Renew(done func(fsm.Code, fsm.Instant))    { done(fsm.OK, 1) }
func (fullSession) Held(context.Context) (fsm.Instant, error) { return 1, nil }
func (fullSession) State(context.Context) ([]byte, error)     { return make([]byte, stateMax), nil }
func (fullSession) SetState(context.Context, []byte) error    { return nil }
func (fullSession) Fetch(numbers []fsm.SequenceNumber, _ bool, done func(fsm.Code, []fsm.Delivery)) {
	done(fsm.OK, nil)
}

// maximal returns the largest request of each operation.
func maximal() map[string]wire.Map {
	tokens := make([]wire.UUID, TokensMax)
	for i := range tokens {
		tokens[i][0], tokens[i][1] = byte(i>>8), byte(i)
	}
	numbers := make([]int64, TokensMax)
	scheduled := make([]any, message.BatchMessagesMax)
	for i := range numbers {
		numbers[i] = int64(i + 1)
	}
	delayed := append(wire.AppendSectionDescriptor(nil, wire.SectionMessageAnnotations), wire.AppendMap(nil, wire.Map{{Key: wire.Symbol(message.ScheduledEnqueueTimeKey), Value: int64(1)}})...)
	delayed = append(delayed, dataSection(16)...)
	for i := range scheduled {
		scheduled[i] = wire.Map{{Key: "message", Value: delayed}}
	}
	named := func(key string, value any) wire.Map { return wire.Map{{Key: key, Value: value}} }
	page := wire.Map{{Key: "top", Value: int32(1 << 30)}, {Key: "skip", Value: int32(1 << 20)}}
	return map[string]wire.Map{
		RenewOperation:        named("lock-tokens", wire.Array{Values: tokens}),
		PeekOperation:         {{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1 << 30)}},
		DispositionOperation:  {{Key: "lock-tokens", Value: wire.Array{Values: tokens}}, {Key: "disposition-status", Value: "abandoned"}, {Key: "properties-to-modify", Value: named("p", strings.Repeat("x", 30<<10))}},
		DeferredOperation:     {{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}, {Key: "receiver-settle-mode", Value: uint32(1)}},
		ScheduleOperation:     named("messages", scheduled),
		CancelOperation:       named("sequence-numbers", wire.Array{Values: numbers}),
		BatchDeleteOperation:  named(MessageCountKey, int32(1<<30)),
		RenewSessionOperation: named("session-id", "s"),
		GetStateOperation:     named("session-id", "s"),
		SetStateOperation:     {{Key: "session-id", Value: "s"}, {Key: "session-state", Value: make([]byte, stateMax)}},
		ListSessionsOperation: append(page, wire.Pair{Key: "last-updated-time", Value: nil}),
		AddRuleOperation: {
			{Key: "rule-name", Value: strings.Repeat("n", 50)},
			{Key: "rule-description", Value: wire.Map{{Key: "sql-filter", Value: named("expression", "a in ("+strings.Repeat("1,", 400)+"1)")}}},
		},
		RemoveRuleOperation:     named("rule-name", strings.Repeat("n", 50)),
		EnumerateRulesOperation: page,
	}
}

func dataSection(n int) []byte {
	return wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), make([]byte, n))
}

// entityFor returns an entity that allows an operation.
func entityFor(t *testing.T, operation string) fsm.EntityRef {
	t.Helper()
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.SubscriptionEntity} {
		for _, sessions := range []bool{false, true} {
			at := fsm.EntityRef{Entity: fsm.Entity{Kind: kind, Settings: fsm.EntitySettings{MaxMessageBytes: stateMax, RequiresSession: sessions}}}
			if NotAllowed(operation, &at).Condition == "" {
				return at
			}
		}
	}
	t.Fatalf("%s: no entity allows it", operation)
	return fsm.EntityRef{}
}

// Every operation at its limits allocates no more than it is charged for, its response is no larger than what was reserved
// for it or counted while it was built, and nothing is held after the response. An operation without a maximal request fails.
//
//nolint:paralleltest // it measures what the process allocates
func TestOperationsAtTheirLimits(t *testing.T) {
	var buffer []byte
	stored := kit.Must(message.ParseWithID(&buffer, dataSection(30<<10)))(t)
	requests := maximal()
	for _, operation := range Operations() {
		body, ok := requests[operation]
		if !ok {
			t.Errorf("%s has no maximal request: add one", operation)
			continue
		}
		at := entityFor(t, operation)
		conn := &heldConn{}
		m := New(conn, &generous{payload: stored.Payload}, nil, slog.New(slog.DiscardHandler))
		var resp Response
		perform := func() {
			answered := make(chan struct{})
			m.Perform(t.Context(), &Request{At: at, Body: body, Respond: func(_ context.Context, r Response) { resp = r; close(answered) }}, operation)
			<-answered
		}
		perform()
		if resp.Condition != "" {
			t.Errorf("%s is refused: %+v", operation, resp.Reply)
			continue
		}
		price := PriceOf(operation, &at, body)
		_, held := conn.holds()
		encoded := len(wire.AppendMap(nil, resp.Body))
		// The gateway counts the largest response twice, as it is stored and once more encoded.
		if counted := 2*price.LargestBytes + held; encoded > counted+1024 {
			t.Errorf("%s: a response of %d bytes, and %d are counted", operation, encoded, counted)
		}
		each, retained := kit.Allocation(4, perform)
		units := 5 + price.Work + encoded/512 // with that of every request and its response
		t.Logf("%-45s %6d units, %9d bytes allocated, %6d a unit, response of %8d bytes", operation, units, each, each/units, encoded)
		if each > units*kit.UnitBytesMax {
			t.Errorf("%s allocates %d bytes for %d units: %d for each", operation, each, units, each/units)
		}
		if retained > kit.RetainedBytesMax {
			t.Errorf("%s leaves %d bytes behind", operation, retained)
		}
		kit.Eventually(t, operation+" holds nothing after its response", func() bool { now, _ := conn.holds(); return now == 0 })
	}
}
