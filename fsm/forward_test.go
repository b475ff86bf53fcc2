package fsm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// exampleForwarding is one of each of the commands that move messages between entities.
func exampleForwarding() []fsm.Command {
	dead := fsm.Address{Entity: 300, Sub: fsm.DeadLetterQueue}
	return []fsm.Command{
		fsm.ForwardMessages{
			Address: dead, Done: 1 << 40, Codes: []fsm.Code{fsm.OK, fsm.QuotaExceeded},
			To: fsm.Destination{Partition: 3, Entity: 1 << 50}, After: 1 << 40, Max: 256, MaxBytes: 512 << 10,
		},
		fsm.TransferMessages{
			Entity: 300, Source: fsm.Outbox{Partition: 3, Address: dead}, Epoch: 1<<64 - 1, Serial: 1 << 40,
			Messages: []fsm.Transferred{
				{
					Message: fsm.Message{ID: "m1", Payload: []byte("hello"), TimeToLive: 60_000, Properties: []byte{}}, Number: 7,
					Patches: fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 7, Source: "orders"}}), Hops: 4,
				},
				{Message: fsm.Message{Payload: []byte{}, Properties: []byte{}}, Number: 1 << 50, Patches: []byte{}, Hops: 1},
			},
		},
		fsm.BeginEpoch{Epoch: 1<<64 - 1, Address: dead, Serial: 1 << 40, Replaces: 1 << 63},
	}
}

// forwardSome leaves queue 20 with a batch in flight, a message that waits, one that could not be
// delivered and some that were forwarded to it.
func forwardSome(apply func(fsm.Command) fsm.Result) {
	s := fsm.DefaultSettings()
	s.ForwardTo, s.MaxMessageBytes = "elsewhere", 10
	apply(fsm.PutEntity{Entity: 20, Version: 1, Settings: s})
	c := transferOf(7, carried("far"), carried("away"), carried("too long for it"))
	c.Entity = 20
	c.Messages[1].Patches = fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 70, Source: "orders"}})
	apply(c)
	c.Source.Address.Sub, c.Messages = fsm.DeadLetterQueue, c.Messages[:2]
	apply(c)
	f := take(20, 1)
	apply(f)
	f.Done, f.Codes, f.Max = 1, []fsm.Code{fsm.QuotaExceeded}, 2
	apply(f)
}

// tryForwarding returns commands for a state machine in the state that forwardSome leaves.
func tryForwarding() []fsm.Command {
	refused, more, dead := take(20, 9), take(20, 9), take(20, 9)
	refused.Done, refused.Codes, more.Done = 2, []fsm.Code{fsm.OK, fsm.MessageTooLarge}, 2
	dead.Address.Sub = fsm.DeadLetterQueue
	again, next := transferOf(7, carried("far")), transferOf(8, carried("new"), carried("far too long for it"))
	again.Entity, next.Entity = 20, 20
	published := next
	published.Entity = 30
	return []fsm.Command{refused, more, dead, again, next, published}
}

// forwarding makes the commands of forwarding for scenarios:
//
//	forward [dead] [done=N] [to=N] [after=N] [max=N] [bytes=N]       with the codes of the batch
//	transfer entity=N source=N [dead] batch=N [hops=N]    with the messages
//
// The scenario is in partition 1; everything forwarded goes there or comes from there.
func (s *scenario) forwarding(d *datadriven.TestData) fsm.Command {
	switch d.Cmd {
	case "forward":
		c := fsm.ForwardMessages{
			Address: address(d), Done: number(d, "done", 0), After: fsm.SequenceNumber(number(d, "after", 0)),
			Max: uint32(number(d, "max", 10)), MaxBytes: uint32(number(d, "bytes", 1000)),
		}
		for _, word := range strings.Fields(d.Input) {
			c.Codes = append(c.Codes, codeNamed(s.t, word))
		}
		if to := number(d, "to", 0); to != 0 {
			c.To = fsm.Destination{Partition: 1, Entity: fsm.EntityID(to)}
		}
		return c
	case "transfer":
		from := address(d)
		c := fsm.TransferMessages{Entity: from.Entity, Serial: number(d, "batch", 1)}
		from.Entity = fsm.EntityID(number(d, "source", 9))
		c.Source = fsm.Outbox{Partition: 1, Address: from}
		for _, l := range strings.Split(d.Input, "\n") {
			m := fsm.Transferred{Message: s.message(d, l), Hops: uint8(number(d, "hops", 1)), Number: fsm.SequenceNumber(len(c.Messages) + 1)}
			if n := number(d, "was", 0); n != 0 {
				m.Patches = fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: fsm.SequenceNumber(n)}})
			}
			c.Messages = append(c.Messages, m)
		}
		return c
	}
	return nil
}

func codeNamed(t *testing.T, word string) fsm.Code {
	for c := range fsm.Code(100) {
		if c.String() == strings.ReplaceAll(word, "_", " ") {
			return c
		}
	}
	t.Fatalf("no code %s", word)
	return 0
}

// outbox shows what is known of the outbox of a sub-queue, and all there are.
func (s *scenario) outbox(d *datadriven.TestData) string {
	out, to, wants, ok := s.q.Outbox(address(d))
	text := fmt.Sprintf("%v out %v to %d wants %q, of", ok, out, to.Entity, wants)
	for _, a := range s.q.Outboxes() {
		text += " " + messageRef(a)
	}
	return text + "\n"
}

// between is a state machine under test.
type between struct {
	*replica
	t   testing.TB
	env fsm.Env
}

func newBetween(t testing.TB) *between {
	return &between{replica: newReplica(t), t: t, env: fsm.Env{Now: 1_000_000}}
}

func (b *between) do(c fsm.Command) fsm.Result {
	b.env.Index++
	return b.q.Apply(oneTime(b.env), fsm.AppendCommand(nil, fsm.Header{}, c))
}

// must performs a command that is not refused.
func (b *between) must(c fsm.Command) fsm.Result {
	b.t.Helper()
	res := b.do(c)
	if res.Code != fsm.OK {
		b.t.Fatalf("%T: %v", c, res.Code)
	}
	return res
}

func (b *between) put(id fsm.EntityID, version uint64, change func(*fsm.EntitySettings)) {
	b.t.Helper()
	s := fsm.DefaultSettings()
	if change != nil {
		change(&s)
	}
	b.must(fsm.PutEntity{Entity: id, Version: version, Settings: s})
}

func (b *between) send(id fsm.EntityID, n int, m fsm.Message) {
	b.t.Helper()
	c := fsm.SendMessages{Entity: id}
	for range n {
		c.Messages = append(c.Messages, m)
	}
	b.must(c)
}

func (b *between) counts(id fsm.EntityID) fsm.Counts {
	c, _ := b.q.Counts(id)
	return c
}

var elsewhere = fsm.Destination{Partition: 2, Entity: 77}

func take(id fsm.EntityID, most uint32) fsm.ForwardMessages {
	return fsm.ForwardMessages{Address: fsm.Address{Entity: id}, To: elsewhere, Max: most, MaxBytes: 1 << 20}
}

func transferOf(serial uint64, messages ...fsm.Transferred) fsm.TransferMessages {
	for i := range messages {
		if messages[i].Number == 0 {
			messages[i].Number = fsm.SequenceNumber(i + 1)
		}
	}
	return fsm.TransferMessages{
		Entity: 1, Source: fsm.Outbox{Partition: 2, Address: fsm.Address{Entity: 5}}, Serial: serial, Messages: messages,
	}
}

// carried returns a message in transit.
func carried(payload string) fsm.Transferred {
	return fsm.Transferred{Message: fsm.Message{Payload: []byte(payload)}, Hops: 1}
}

func onward(s *fsm.EntitySettings) { s.ForwardTo = "elsewhere" }

// TestForwardIsIdempotent: the batch in flight is returned as often as it is asked for, and ended
// once.
func TestForwardIsIdempotent(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, onward)
	b.send(1, 5, fsm.Message{Payload: []byte("x")})
	first := b.must(take(1, 3))
	if first.Serial != 1 || first.To != elsewhere || len(first.Deliveries) != 3 || first.Deliveries[0].State != fsm.Forwarding {
		t.Fatalf("first batch %+v", first)
	}
	for _, origin := range []uint64{0, 3, 3} {
		for _, to := range []fsm.Destination{{}, elsewhere, {Partition: 8, Entity: 8}} {
			again := take(1, 100)
			again.To = to
			h := fsm.Header{Incarnation: origin, Serial: origin, Low: origin}
			res := b.q.Apply(oneTime(b.env), fsm.AppendCommand(nil, h, again))
			if diff := cmp.Diff(first, res, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("asked again by %d it is another batch:\n%s", origin, diff)
			}
		}
	}
	done := take(1, 100)
	done.Done = 1
	second := b.must(done)
	if second.Serial != 2 || len(second.Deliveries) != 2 || second.Deliveries[0].Lock.Sequence != 4 {
		t.Fatalf("second batch %+v", second)
	}
	for _, serial := range []uint64{1, 3, 1 << 60} {
		done.Done = serial
		if diff := cmp.Diff(second, b.must(done), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("done %d changes something:\n%s", serial, diff)
		}
	}
	done.Done = 2
	if res := b.must(done); res.Serial != 0 || b.q.Messages() != 0 || len(b.bodies.bodies) != 0 {
		t.Fatalf("at the end %+v, %d messages, %d bodies", res, b.q.Messages(), len(b.bodies.bodies))
	}
}

// TestRefusedForwardChangesNothing: each code a ForwardMessages is refused with, and that it changes
// nothing then.
func TestRefusedForwardChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, onward)
	b.send(1, 3, fsm.Message{})
	b.must(take(1, 2))
	before := b.q.Digest()
	at := fsm.Address{Entity: 1}
	for name, x := range map[string]struct {
		c    fsm.ForwardMessages
		want fsm.Code
	}{
		"no entity":        {take(2, 1), fsm.EntityNotFound},
		"sub-queue":        {fsm.ForwardMessages{Address: fsm.Address{Entity: 1, Sub: fsm.TransferDeadLetterQueue}}, fsm.InvalidArgument},
		"too many":         {take(1, 4097), fsm.InvalidArgument},
		"none":             {take(1, 0), fsm.InvalidArgument},
		"to the catalog":   {fsm.ForwardMessages{Address: at, To: fsm.Destination{Entity: 3}, Max: 1}, fsm.InvalidArgument},
		"to no entity":     {fsm.ForwardMessages{Address: at, To: fsm.Destination{Partition: 3}, Max: 1}, fsm.InvalidArgument},
		"codes of nothing": {fsm.ForwardMessages{Address: at, Codes: make([]fsm.Code, 2)}, fsm.InvalidArgument},
		"too many codes":   {fsm.ForwardMessages{Address: at, Done: 1, Codes: make([]fsm.Code, 4097)}, fsm.InvalidArgument},
		"other codes":      {fsm.ForwardMessages{Address: at, Done: 1, Codes: make([]fsm.Code, 3)}, fsm.InvalidArgument},
	} {
		if res := b.do(x.c); res.Code != x.want || res.Serial != 0 {
			t.Errorf("%s: %v, batch %d", name, res.Code, res.Serial)
		}
	}
	if b.q.Digest() != before {
		t.Error("a refused command changed the state")
	}
}

// TestForwardBatchIsBounded: a batch ends at Max and at MaxBytes, patches included, and has at
// least one message.
func TestForwardBatchIsBounded(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.send(1, 4, fsm.Message{Payload: make([]byte, 100)})
	locked := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, MaxBytes: 1000}).Deliveries
	b.must(fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
		{Lock: locked[0].Lock, Verb: fsm.Release, Properties: make([]byte, 1000)},
	}})
	b.put(1, 2, onward)
	c := take(1, 100)
	for i, want := range []struct{ bytes, messages int }{{0, 1}, {199, 1}, {299, 2}} {
		c.MaxBytes, c.Done = uint32(want.bytes), uint64(i)
		if res := b.must(c); len(res.Deliveries) != want.messages {
			t.Errorf("batch %d has %d messages", i, len(res.Deliveries))
		}
	}
	b.send(1, 4096, fsm.Message{})
	b.send(1, 1, fsm.Message{})
	c = take(1, 4096)
	c.Done = 3
	if res := b.must(c); len(res.Deliveries) != 4096 {
		t.Errorf("%d messages in the largest batch", len(res.Deliveries))
	}
}

// TestForwardDeadLettersInSteps: a command that finds only messages to dead-letter stops after a
// bounded number and asks to be repeated.
func TestForwardDeadLettersInSteps(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { onward(s); s.DeadLetterOnExpiry = true })
	b.send(1, 2500, fsm.Message{TimeToLive: 10})
	b.env.Now += 10
	b.q.Effects()
	for turn, left := range []uint64{1500, 500, 0} {
		if res := b.must(take(1, 10)); res.Serial != 0 {
			t.Fatalf("turn %d took %d", turn, len(res.Deliveries))
		}
		if c := b.counts(1); c.Transfer != left || c.DeadLetter != 2500-left {
			t.Fatalf("after turn %d: %+v", turn, c)
		}
		urged := false
		for _, e := range b.q.Effects() {
			urged = urged || e.Kind == fsm.EffectForward && e.Ready == left
		}
		if urged != (left > 0) {
			t.Errorf("after turn %d urged: %v", turn, urged)
		}
	}
}

// TestForwardingEntityIsNotIdle: an entity that forwards does not delete itself (docs/requirements.md#e8); once it
// does not, its time begins.
func TestForwardingEntityIsNotIdle(t *testing.T) {
	t.Parallel()
	idle := func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 300_000 }
	for name, forwards := range map[string]func(*fsm.EntitySettings){
		"messages": onward, "dead letters": func(s *fsm.EntitySettings) { s.ForwardDeadLettersTo = "elsewhere" },
	} {
		b := newBetween(t)
		b.put(1, 1, idle)
		b.put(1, 2, func(s *fsm.EntitySettings) { idle(s); forwards(s) })
		b.env.Now += 400_000
		b.must(fsm.Pulse{})
		if b.q.Entities() != 1 {
			t.Fatalf("%s: it is gone", name)
		}
		b.put(1, 3, idle)
		b.env.Now += 299_999
		b.must(fsm.Pulse{})
		if b.q.Entities() != 1 {
			t.Fatalf("%s: it is gone too early", name)
		}
		b.env.Now++
		b.must(fsm.Pulse{})
		if b.q.Entities() != 0 {
			t.Errorf("%s: it stays", name)
		}
	}
}

// TestLimitsOfForwardingHold: every limit of the two commands, met and passed by one, in
// whatever way it is checked.
func TestLimitsOfForwardingHold(t *testing.T) {
	t.Parallel()
	forward := func(most uint32, codes int) fsm.Command {
		return fsm.ForwardMessages{Address: fsm.Address{Entity: 1}, Done: 1, Codes: make([]fsm.Code, codes), To: elsewhere, Max: most}
	}
	transfer := func(messages, id int, life fsm.Millis, hops uint8, properties int) fsm.Command {
		c := transferOf(1, make([]fsm.Transferred, messages)...)
		for i := range c.Messages {
			c.Messages[i].Hops = 1
		}
		m := &c.Messages[messages-1]
		m.ID, m.TimeToLive, m.Hops = strings.Repeat("i", id), life, hops
		text := filter.Text(strings.Repeat("v", max(properties-8, 0)))
		if properties > 0 {
			m.Properties = fsm.AppendProperties(nil, []fsm.Property{{Name: filter.Property{Name: "p"}, Value: text}})
		}
		if len(m.Properties) != properties {
			t.Fatalf("%d bytes of properties, want %d", len(m.Properties), properties)
		}
		return c
	}
	for _, c := range []struct {
		name    string
		command fsm.Command
		valid   bool
	}{
		{"most", forward(4096, 4096), true},
		{"max", forward(4097, 0), false},
		{"max", forward(1<<32-1, 0), false},
		{"codes", forward(1, 4097), false},
		{"most", transfer(4096, 512, fsm.Forever, 4, 64<<10), true},
		{"messages", transfer(4097, 0, 0, 1, 0), false},
		{"message id", transfer(1, 513, 0, 1, 0), false},
		{"hops", transfer(1, 0, 0, 5, 0), false},
		{"hops", transfer(1, 0, 0, 0, 0), false},
		{"properties", transfer(1, 0, 0, 1, 64<<10+1), false},
	} {
		want := fsm.InvalidArgument
		if c.valid {
			want = fsm.OK
		}
		if got := fsm.Check(c.command); got != want {
			t.Errorf("%s: %T is %v, want %v", c.name, c.command, got, want)
		}
		b := fsm.AppendCommand(nil, header, c.command)
		if err := verify(b); c.valid != (err == nil) {
			t.Errorf("%s: %T verifies with %v", c.name, c.command, err)
		}
		if _, _, err := fsm.DecodeCommand(b); c.valid != (err == nil) || err != nil && !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("%s: %T decodes with %v", c.name, c.command, err)
		}
	}
	later := transferOf(1, carried(""))
	later.Messages[0].EnqueueAt = 1
	if code := fsm.Check(later); code != fsm.InvalidArgument {
		t.Errorf("a message for later: %v", code)
	}
	large := transferOf(1, carried(""))
	large.Messages[0].Payload = make([]byte, 100<<20+1) // never touched
	if code := fsm.Check(large); code != fsm.MessageTooLarge {
		t.Errorf("100 MiB and a byte: %v", code)
	}
}
