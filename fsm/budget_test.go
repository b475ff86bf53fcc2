package fsm_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/queue"
)

// The machine of these tests has topic 1 with subscriptions 2 and 3: each message with heavy
// properties takes rules of subscription 2 about half as many steps as an entry may have taken
// when a message is begun, and subscription 3 takes everything.
const (
	heavyRules = 300
	heavyBytes = 30_000
)

// heavyFilter takes nearly all steps of a rule for a heavy message, and does not match.
func heavyFilter() fsm.RuleFilter { return sqlFilter("long LIKE '%" + strings.Repeat("_", 24) + "b'") }

// heavy are the properties of a message that heavyFilter works on, with a number to know it by.
func heavy(n int) []byte {
	return fsm.AppendProperties(nil, []fsm.Property{
		{Name: filter.Property{Name: "long"}, Value: filter.Text(strings.Repeat("a", heavyBytes))},
		{Name: filter.Property{Name: "n"}, Value: filter.Int(int64(n))},
	})
}

// newBudgeted is a state machine with that topic.
func newBudgeted(t testing.TB) *between {
	t.Helper()
	b := newBetween(t)
	b.topic(1, heavyRules)
	return b
}

// topic makes a topic with two subscriptions, the first with so many heavy rules.
func (b *between) topic(id fsm.EntityID, rules int) {
	b.t.Helper()
	s := fsm.DefaultSettings()
	s.DeadLetterOnFilterErrors = true
	b.must(fsm.PutEntity{Entity: id, Version: 1, Settings: s, Kind: fsm.TopicEntity})
	b.must(fsm.PutEntity{Entity: id + 1, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: id, Rule: &fsm.Rule{Name: "r0", Filter: heavyFilter()}})
	b.must(fsm.PutEntity{Entity: id + 2, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: id})
	for i := 1; i < rules; i++ {
		b.must(fsm.PutRule{Subscription: id + 1, Rule: fsm.Rule{Name: fmt.Sprintf("r%d", i), Filter: heavyFilter()}})
	}
}

// sendHeavy sends so many heavy messages, the first with number n, and returns what was answered.
func (b *between) sendHeavy(topic fsm.EntityID, n, messages int) fsm.SequenceNumber {
	b.t.Helper()
	c := fsm.SendMessages{Entity: topic}
	for i := range messages {
		c.Messages = append(c.Messages, fsm.Message{Payload: fmt.Appendf(nil, "m%d", n+i), Properties: heavy(n + i)})
	}
	return b.must(c).Sequence
}

// pulses lets pulses come until nothing is pending, and says how many that took.
func (b *between) pulses() int {
	b.t.Helper()
	for n := range 1000 {
		if at, ok := firstDeadline(b.q); !ok || at > b.env.Now {
			return n
		}
		b.must(fsm.Pulse{})
		if b.q.Steps() > queue.EntryStepsMax() {
			b.t.Fatalf("a pulse of %d steps", b.q.Steps())
		}
	}
	b.t.Fatal("messages stay pending")
	return 0
}

// ready are the payloads that wait in a subscription, and the numbers of the messages at the topic.
func (b *between) ready(id fsm.EntityID) (payloads []string, numbers []fsm.SequenceNumber) {
	for _, d := range b.q.Peek(fsm.Address{Entity: id}, 0, 4096) {
		payloads, numbers = append(payloads, string(b.bodies.Read(d.Body))), append(numbers, d.Topic)
	}
	return payloads, numbers
}

// TestSendOverBudgetIsPublishedByPulses: messages that exceed the budget of an entry are confirmed
// with it and published by the following pulses, in order, under the confirmed numbers and with the
// time at which they were accepted; later sends queue behind them.
func TestSendOverBudgetIsPublishedByPulses(t *testing.T) {
	t.Parallel()
	b := newBudgeted(t)
	accepted := b.env.Now
	if first := b.sendHeavy(1, 1, 6); first != 1 {
		t.Fatalf("the first number is %d", first)
	}
	done, _ := b.ready(3)
	if len(done) == 0 || len(done) >= 6 {
		t.Fatalf("%d of 6 messages are published with their entry", len(done))
	}
	if c := b.counts(1); c.Scheduled != uint64(6-len(done)) {
		t.Errorf("%d messages wait at the topic, %d are published", c.Scheduled, len(done))
	}
	b.env.Now += 10
	if last := b.must(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("m7")}}}).Sequence; last != 7 {
		t.Fatalf("the last number is %d", last)
	}
	if again, _ := b.ready(3); len(again) != len(done) {
		t.Fatal("a message overtakes those that wait")
	}
	if n := b.pulses(); n < 2 {
		t.Errorf("%d pulses publish everything", n)
	}
	payloads, numbers := b.ready(3)
	if got, want := fmt.Sprint(payloads, numbers), "[m1 m2 m3 m4 m5 m6 m7] [1 2 3 4 5 6 7]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i, d := range b.q.Peek(fsm.Address{Entity: 3}, 0, 6) {
		if d.Enqueued != accepted {
			t.Errorf("message %d was accepted at %d and is of %d", i+1, accepted, d.Enqueued)
		}
	}
	if c := b.counts(1); c.Scheduled != 0 || c.Bytes != 14 {
		t.Errorf("left at the topic: %+v", c)
	}
	if c := b.counts(2); c.DeadLetter != 0 || b.q.Exceeded() != 0 {
		t.Errorf("%d dead letters, %d rules over their budget", c.DeadLetter, b.q.Exceeded())
	}
}

// TestPendingMessageKeepsItsFields: its session, its patches, how often it was forwarded, its time to live.
func TestPendingMessageKeepsItsFields(t *testing.T) {
	t.Parallel()
	show := func(b *between) string {
		c := transferOf(1, carried("early"), carried("late"))
		patches := fsm.AppendPatches(nil, []fsm.Patch{{Properties: []byte("p"), Enqueued: 9}})
		for i := range c.Messages {
			m := &c.Messages[i]
			m.Hops, m.Patches, m.Properties, m.TimeToLive = 3, patches, heavy(1), 90_000
			m.Session, m.HasSession = "s", true
		}
		b.must(c)
		b.pulses()
		text := ""
		for _, id := range []fsm.EntityID{3, 4} {
			for _, d := range b.q.Peek(fsm.Address{Entity: id}, 0, 9) {
				if d.Patch != (fsm.Ref{}) {
					d.Patches = b.bodies.Read(d.Patch)
				}
				d.Body, d.Patch = fsm.Ref{}, fsm.Ref{}
				text += fmt.Sprintf("%+v\n", d)
			}
		}
		return text
	}
	busy := func() *between {
		b := newBudgeted(t)
		b.must(fsm.PutEntity{Entity: 4, Version: 1, Settings: fsm.EntitySettings{
			LockDuration: 5000, MaxDeliveryCount: 3, MaxMessageBytes: 9, RequiresSession: true,
		}, Kind: fsm.SubscriptionEntity, Topic: 1})
		b.sendHeavy(1, 0, 4)
		return b
	}
	waited := show(busy()) // behind those that wait
	free := busy()
	free.pulses()
	if got, want := waited, show(free); got != want {
		t.Errorf("a message that waited:\n%s\none that did not:\n%s", got, want)
	}
	if n := strings.Count(waited, "\n"); n != 2*2+4 {
		t.Errorf("%d deliveries:\n%s", n, waited)
	}
}

// TestTopicsWithPendingMessagesTakeTurns: a topic with a great many messages that wait does not keep another one's
// waiting.
func TestTopicsWithPendingMessagesTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBudgeted(t)
	b.topic(11, 1)
	b.sendHeavy(1, 1, 20)
	b.env.Index-- // in the same entry
	b.must(fsm.SendMessages{Entity: 11, Messages: make([]fsm.Message, 50)})
	if c := b.counts(13); c.Active != 0 {
		t.Fatalf("%d messages are published by an entry that has no steps left", c.Active)
	}
	for range 2 {
		b.must(fsm.Pulse{})
	}
	if c := b.counts(13); c.Active != 50 {
		t.Errorf("%d of 50 messages are published after two pulses", c.Active)
	}
	if waiting := b.counts(1).Scheduled; waiting < 10 {
		t.Errorf("only %d messages of the other topic wait: the test has lost its force", waiting)
	}
	// The entry of a pulse has steps left for what comes with it.
	b.must(fsm.Pulse{})
	b.env.Index--
	b.must(fsm.SendMessages{Entity: 11, Messages: make([]fsm.Message, 1)})
	if c := b.counts(13); c.Active != 51 {
		t.Error("a message that comes with a pulse waits")
	}
}

// TestRuleOverBudgetFailsAlone: the message is dead-lettered if the subscription asks for it,
// otherwise the rule does not match. Other rules of the subscription are not affected.
func TestRuleOverBudgetFailsAlone(t *testing.T) {
	t.Parallel()
	over := fsm.Rule{Name: "over", Filter: sqlFilter("long LIKE '%" + strings.Repeat("_", 100) + "a'")}
	within := fsm.Rule{Name: "within", Filter: sqlFilter("long LIKE '%a%' AND n = 1")}
	acts := fsm.Rule{Name: "acts", Action: fsm.SQLText{Text: "SET copy = long + long; SET other = long"}}
	for _, row := range []struct {
		keeps                bool
		active, dead, failed uint64
	}{
		{false, 1, 0, 2}, // within only
		{true, 1, 1, 2},
	} {
		b := newBetween(t)
		s := fsm.DefaultSettings()
		s.DeadLetterOnFilterErrors = row.keeps
		b.must(fsm.PutEntity{Entity: 1, Version: 1, Settings: s, Kind: fsm.TopicEntity})
		b.must(fsm.PutEntity{Entity: 2, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 1, Rule: &over})
		b.must(fsm.PutRule{Subscription: 2, Rule: within})
		b.must(fsm.PutRule{Subscription: 2, Rule: acts})
		b.sendHeavy(1, 1, 1)
		c := b.counts(2)
		if c.Active != row.active || c.DeadLetter != row.dead || b.q.Exceeded() != row.failed {
			t.Errorf("%+v: %+v and %d over their budget", row, c, b.q.Exceeded())
		}
		for _, d := range b.q.Peek(fsm.Address{Entity: 2, Sub: fsm.DeadLetterQueue}, 0, 9) {
			patches, err := fsm.DecodePatches(b.bodies.Read(d.Patch))
			if err != nil || !strings.Contains(patches[0].Description, filter.ErrSteps.Error()) {
				t.Errorf("dead-lettered with %+v, %v", patches, err)
			}
		}
	}
}

// TestWorstRulesStayWithinAnEntry: with the maximum number of the most expensive rules, no entry
// exceeds its maximum of steps.
func TestWorstRulesStayWithinAnEntry(t *testing.T) {
	t.Parallel()
	if took, most := worstEntry(t), queue.EntryStepsMax(); took > most || took < most/4 {
		t.Errorf("an entry takes %d steps, want at most %d and at least a quarter of that", took, most)
	}
}

// worstEntry returns the most steps of an entry that publishes by the worst rules.
func worstEntry(t *testing.T) (most uint64) {
	t.Helper()
	b := newBetween(t)
	b.topic(1, 1)
	action := fsm.SQLText{Text: strings.Repeat("SET b = 'x' + 1.5;", 12)}
	for i := range 1998 {
		b.must(fsm.PutRule{Subscription: 2, Rule: fsm.Rule{Name: fmt.Sprintf("s%d", i), Filter: heavyFilter()}})
	}
	for i := range 4000 {
		conditions := []filter.Condition{{Property: filter.Property{Name: "n"}, Value: filter.Int(1)}}
		rule := fsm.Rule{Name: fmt.Sprintf("c%d", i), Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: conditions}, Action: action}
		b.must(fsm.PutRule{Subscription: fsm.EntityID(2 + i%2), Rule: rule})
	}
	for range 2 {
		b.sendHeavy(1, 1, 1)
		b.must(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Properties: heavy(1)}, {Properties: heavy(1)}}})
		most = max(most, b.q.Steps())
		b.pulses()
	}
	if b.q.Exceeded() == 0 {
		t.Error("no action was over what the correlation filters of a subscription have together")
	}
	return most
}

// TestReplicasAgreeOnPendingMessages: two replicas that apply the same history, one of them
// repeatedly restored from its own image, are always equal.
func TestReplicasAgreeOnPendingMessages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 7))
		a, b := newBetween(t), newBetween(t)
		waited := 0
		do := func(c fsm.Command) {
			t.Helper()
			x, y := a.do(c), b.do(c)
			if !reflect.DeepEqual(x, y) {
				t.Fatalf("seed %d, %T: %+v and %+v", seed, c, x, y)
			}
		}
		topics := func(id fsm.EntityID) {
			s := fsm.DefaultSettings()
			do(fsm.PutEntity{Entity: id, Version: 1, Settings: s, Kind: fsm.TopicEntity})
			for i := fsm.EntityID(1); i < 3; i++ {
				do(fsm.PutEntity{Entity: id + i, Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: id})
			}
		}
		topics(10)
		topics(20)
		for step := range 100 {
			topic := fsm.EntityID(10 + 10*random.IntN(2))
			sub := topic + fsm.EntityID(1+random.IntN(2))
			switch random.IntN(12) {
			case 0, 1:
				for range 100 {
					do(fsm.PutRule{Subscription: sub, Rule: fsm.Rule{Name: fmt.Sprint("r", random.IntN(800)), Filter: heavyFilter()}})
				}
			case 2, 3:
				conditions := []filter.Condition{
					{Property: filter.Property{Name: "n"}, Value: filter.Int(int64(random.IntN(3)))},
					{Property: filter.Property{Name: "m"}, Value: filter.Int(int64(random.IntN(3)))},
				}[:random.IntN(3)]
				rule := fsm.Rule{Name: fmt.Sprint("c", random.IntN(20)), Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: conditions}}
				if random.IntN(2) == 0 {
					rule.Action.Text = "SET n = 5"
				}
				do(fsm.PutRule{Subscription: sub, Rule: rule})
			case 4:
				do(fsm.DropRule{Subscription: sub, Name: fmt.Sprint("c", random.IntN(20))})
			case 5:
				do(fsm.DropEntity{Entity: sub})
				do(fsm.PutEntity{Entity: sub, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: topic})
			case 6:
				if random.IntN(4) == 0 {
					do(fsm.DropEntity{Entity: topic})
					topics(topic)
				}
			case 7, 8:
				a.env.Now += fsm.Instant(random.IntN(5000))
				b.env.Now = a.env.Now
				do(fsm.Pulse{})
			default:
				c := fsm.SendMessages{Entity: topic}
				for range 1 + random.IntN(5) {
					m := fsm.Message{Payload: []byte("x"), Properties: heavy(random.IntN(3))}
					if random.IntN(4) == 0 {
						m.EnqueueAt = a.env.Now + fsm.Instant(random.IntN(9000))
					}
					c.Messages = append(c.Messages, m)
				}
				do(c)
			}
			if a.q.Digest() != b.q.Digest() {
				t.Fatalf("seed %d: the machines differ after step %d", seed, step)
			}
			if x, _ := firstDeadline(a.q); x != 0 && x <= a.env.Now {
				waited++
			}
			if random.IntN(3) == 0 {
				b.replica = b.restored()
			}
		}
		if waited < 5 {
			t.Errorf("seed %d: something waited %d times, want at least 5", seed, waited)
		}
		a.pulses()
		b.pulses()
		if a.q.Digest() != b.q.Digest() {
			t.Errorf("seed %d: the machines differ at the end", seed)
		}
		refs := 0
		b.q.Image().Refs(func(fsm.Owner, fsm.Ref) { refs++ })
		if refs != len(b.bodies.bodies) {
			t.Errorf("seed %d: %d bodies are referred to, %d are held", seed, refs, len(b.bodies.bodies))
		}
	}
}

// TestFormatLevelRisesOnlyByCommand: it only rises, travels in images, and begins at 1.
func TestFormatLevelRisesOnlyByCommand(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	if level := b.q.FormatLevel(); level != 1 {
		t.Fatalf("a new state machine has level %d, want 1", level)
	}
	for _, row := range []struct {
		to, is uint32
		code   fsm.Code
	}{{0, 1, fsm.InvalidArgument}, {1, 1, fsm.OK}, {2, 2, fsm.OK}, {2, 2, fsm.OK}, {1, 2, fsm.PreconditionFails}, {3, 3, fsm.OK}} {
		if res := b.do(fsm.RaiseLevel{Level: row.to}); res.Code != row.code || b.q.FormatLevel() != row.is {
			t.Errorf("raised to %d: %v, and it is %d", row.to, res.Code, b.q.FormatLevel())
		}
	}
	if level := b.restored().q.FormatLevel(); level != 3 {
		t.Errorf("a restored state machine has level %d, want 3", level)
	}
}

// TestImageKeepsIndexConditions: the conditions by which correlation filters are indexed depend on
// earlier filters, and the steps of publishing depend on them. A restored replica has the same
// ones.
func TestImageKeepsIndexConditions(t *testing.T) {
	t.Parallel()
	rule := func(name string, properties ...string) fsm.Rule {
		r := fsm.Rule{Name: name, Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter}}
		for _, p := range properties {
			r.Filter.Conditions = append(r.Filter.Conditions, filter.Condition{Property: filter.Property{Name: p}, Value: filter.Int(1)})
		}
		return r
	}
	history := func(b *between) {
		b.must(fsm.PutRule{Subscription: 2, Rule: rule("first", "a")})
		b.must(fsm.PutRule{Subscription: 2, Rule: rule("second", "a", "b")}) // filed by b
		b.must(fsm.DropRule{Subscription: 2, Name: "first"})                 // alone, it would be by a
	}
	steps := func(b *between) uint64 {
		b.must(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Properties: propertiesOf(t, "b=1")}}})
		return b.q.Steps()
	}
	b := newBetween(t)
	b.topic(1, 1)
	history(b)
	again := *b
	again.replica = b.restored()
	if x, y := steps(b), steps(&again); x != y || b.q.Digest() != again.q.Digest() {
		t.Errorf("%d steps, and %d when restored", x, y)
	}
}

// examplePending is a state machine with Pending messages at two topics, and
// correlation filters.
func examplePending(t testing.TB) *between {
	b := newBetween(t)
	b.env.Now = 1_700_000_000_000
	b.topic(1, 1)
	b.topic(5, 1)
	b.must(fsm.PutRule{Subscription: 6, Rule: fsm.Rule{Name: "some", Filter: customerFilter(1)}})
	b.must(fsm.PutRule{Subscription: 6, Rule: fsm.Rule{Name: "all", Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter}}})
	large := fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "other"}, Value: filter.Text(strings.Repeat("a", 65_000))}})
	c := fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("a")}}}
	for range 10 { // properties alone take so many steps that an entry begins nine
		c.Messages = append(c.Messages, fsm.Message{Payload: []byte("b"), TimeToLive: 60_000, Properties: large})
	}
	b.must(c)
	b.env.Index--
	b.must(fsm.SendMessages{Entity: 5, Messages: []fsm.Message{{Payload: []byte("c")}, {Payload: []byte("d"), Properties: order(1)}}})
	for topic, want := range map[fsm.EntityID]uint64{1: 2, 5: 2} {
		if c := b.counts(topic); c.Scheduled != want {
			t.Fatalf("%d messages wait at topic %d, want %d", c.Scheduled, topic, want)
		}
	}
	return b
}

// TestPendingMessagesSurviveImages: the format of an image with Pending messages; an image with one
// changed byte is refused, or makes a working state machine.
func TestPendingMessagesSurviveImages(t *testing.T) {
	t.Parallel()
	b := examplePending(t)
	image := b.image()
	golden(t, "image-queues-pending", image)
	refused := 0
	for i := range len(image) - 4 {
		for _, change := range []byte{1, 0xff} {
			tampered := bytes.Clone(image)
			tampered[i] ^= change
			q := queue.New(&discardBodies{})
			if err := q.Restore(bytes.NewReader(sealed(tampered))); err != nil {
				refused++
				continue
			}
			exercise(t, q)
			for id := fsm.EntityID(1); id < 10; id++ {
				q.Apply(oneTime(fsm.Env{Index: 2, Now: 1 << 50}), fsm.AppendCommand(nil, fsm.Header{}, fsm.DropEntity{Entity: id}))
			}
		}
	}
	if refused == 0 {
		t.Error("every image is taken")
	}
}

// TestPendingMessageFormat: what is stored of a message that waits.
func TestPendingMessageFormat(t *testing.T) {
	t.Parallel()
	b := newBudgeted(t)
	b.sendHeavy(1, 1, 4)
	before := b.bodies.next
	m := carried("p")
	m.Hops, m.Session, m.HasSession, m.Patches = 2, "s", true, fsm.AppendPatches(nil, []fsm.Patch{{Properties: []byte("p")}})
	m.Properties = propertiesOf(t, "n=1")
	b.must(transferOf(1, m))
	for ref, stored := range b.bodies.bodies {
		if stored.owner.Patch && ref.Offset > before {
			golden(t, "rest", stored.bytes)
			return
		}
	}
	t.Errorf("nothing is stored beside the payload: %s", hex.EncodeToString(b.image()[:20]))
}

// TestActionsOfManyCorrelationFiltersRunInOrder: whatever the conditions by which the filters are indexed, the
// actions of a subscription run in the order of its rules until its budget is used; the rest fails.
func TestActionsOfManyCorrelationFiltersRunInOrder(t *testing.T) {
	t.Parallel()
	const rules, properties = 6000, 12 // rules of each of two subscriptions
	b := newBetween(t)
	b.topic(1, 1)
	var conditions []filter.Condition
	for i := range properties {
		conditions = append(conditions, filter.Condition{Property: filter.Property{Name: fmt.Sprint("p", i)}, Value: filter.Int(1)})
	}
	action := fsm.SQLText{Text: "SET a = 1"}
	for i := range 2 * rules {
		b.must(fsm.PutRule{Subscription: fsm.EntityID(2 + i%2), Rule: fsm.Rule{
			Name: fmt.Sprint("c", i), Filter: fsm.RuleFilter{Kind: fsm.CorrelationFilter, Conditions: conditions}, Action: action,
		}})
	}
	for i := 100; i < 200; i++ { // removing moves others
		b.must(fsm.DropRule{Subscription: fsm.EntityID(2 + i%2), Name: fmt.Sprint("c", i)})
	}
	var message []fsm.Property
	for _, c := range conditions {
		message = append(message, fsm.Property{Name: c.Property, Value: c.Value})
	}
	b.must(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Properties: fsm.AppendProperties(nil, message)}}})
	ran := 0
	for id := fsm.EntityID(2); id <= 3; id++ {
		next := int(id) - 2
		if id == 3 { // the copy for the rule that matches everything comes first
			ran--
		}
		for at := fsm.SequenceNumber(0); ; {
			copies := b.q.Peek(fsm.Address{Entity: id}, at, 4096)
			if len(copies) == 0 {
				break
			}
			ran += len(copies)
			for _, d := range copies {
				at = d.Lock.Sequence + 1
				if d.Patch == (fsm.Ref{}) {
					continue
				}
				changes := b.patches(d)[0].Changes
				if got, want := changes[len(changes)-1].Value.AsText(), fmt.Sprint("c", next); got != want {
					t.Fatalf("subscription %d: the copy of %s where that of %s is expected", id, got, want)
				}
				if next += 2; next == int(id)+98 {
					next += 100
				}
			}
		}
		if c := b.counts(id); c.DeadLetter != 1 {
			t.Errorf("subscription %d: %d dead letters for the rules over the budget", id, c.DeadLetter)
		}
	}
	if left := 2*rules - 100 - ran; left <= 0 || b.q.Exceeded() != uint64(left) {
		t.Errorf("%d actions ran, %d rules were over the budget, of %d", ran, b.q.Exceeded(), 2*rules-100)
	}
}
