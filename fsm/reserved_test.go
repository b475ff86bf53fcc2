package fsm_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

// exampleReserved returns the commands about reserved numbers, with every field set.
func exampleReserved() []fsm.Command {
	c, _ := exampleTransact().(fsm.Transact)
	c.Sends[0].Messages[1].Reserved, c.Transfers[0].Messages[0].Reserved, c.Transfers[0].Messages[0].EnqueueAt = 1<<40, 7, 1_800_000_000_000
	c.Sends[0].Messages[0].Only = 1 << 50
	c.Cancels = []fsm.CancelScheduled{{Entity: 300, Sequences: []fsm.SequenceNumber{9, 1 << 33}}}
	c.States = []fsm.SetSessionState{
		{Entity: 300, Lock: fsm.SessionLock{ID: "s", Epoch: 1 << 40}, State: []byte("state")},
		{Entity: 300, Lock: fsm.SessionLock{ID: "", Epoch: 1}, State: []byte{}, Clear: true},
	}
	return []fsm.Command{
		c,
		fsm.ReserveNumbers{Entity: 300, Count: 100},
		fsm.TransferMessages{
			Entity: 300, Source: fsm.Outbox{Partition: 3, Address: fsm.Address{Entity: 300, Sub: fsm.TransferQueue}}, Epoch: 1<<64 - 1, Serial: 1 << 40,
			Messages: []fsm.Transferred{
				{Message: fsm.Message{Payload: []byte("hello"), Properties: []byte{}, Reserved: 1 << 40, EnqueueAt: 1_800_000_000_000}, Number: 7, Patches: []byte{}},
				{Message: fsm.Message{Payload: []byte{}, Properties: []byte{}}, Number: 1 << 50, Patches: []byte{}},
			},
		},
	}
}

// reservedPatch is the patch of a message that is scheduled at its destination.
func reservedPatch() fsm.Patch {
	return fsm.Patch{Properties: []byte{}, To: fsm.Destination{Partition: 3, Entity: 1 << 50}, ToName: "orders", ToNumber: 1 << 40, ToTime: 1_800_000_000_000}
}

// scheduledFor returns a message that a transaction schedules under a reserved number.
func scheduledFor(at fsm.Instant, n fsm.SequenceNumber) fsm.Message {
	return fsm.Message{Payload: []byte("later"), EnqueueAt: at, Reserved: n}
}

// states returns the numbers and states of the messages in the main queue of an entity.
func (b *between) states(id fsm.EntityID) map[fsm.SequenceNumber]fsm.MessageState {
	found := make(map[fsm.SequenceNumber]fsm.MessageState)
	for _, d := range b.q.Peek(fsm.Address{Entity: id}, 0, 100) {
		found[d.Lock.Sequence] = d.State
	}
	return found
}

// TestTransactionSchedulesUnderReservedNumbers: messages that a transaction schedules have the numbers that were reserved
// for them, which cancel them; numbers that are not used stay a gap.
func TestTransactionSchedulesUnderReservedNumbers(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.send(1, 1, fsm.Message{})
	if got := b.must(fsm.ReserveNumbers{Entity: 1, Count: 3}).Sequence; got != 2 {
		t.Fatalf("reserved from %d", got)
	}
	b.send(1, 1, fsm.Message{})
	due := b.env.Now + 60_000
	res := b.must(fsm.Transact{Sends: []fsm.SendMessages{{Entity: 1, Messages: []fsm.Message{scheduledFor(due, 3), scheduledFor(due, 4), {Payload: []byte("now")}, scheduledFor(1, 2)}}}})
	if diff := cmp.Diff([]fsm.SequenceNumber{3, 4, 6, 7}, res.Sequences); diff != "" {
		t.Error(diff) // the time of the last one has come
	}
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("an image loses something")
	}
	b.must(fsm.CancelScheduled{Entity: 1, Sequences: []fsm.SequenceNumber{3}})
	want := map[fsm.SequenceNumber]fsm.MessageState{1: fsm.Ready, 4: fsm.Scheduled, 5: fsm.Ready, 6: fsm.Ready, 7: fsm.Ready}
	if diff := cmp.Diff(want, b.states(1)); diff != "" {
		t.Error(diff)
	}
	b.env.Now = due
	b.must(fsm.Pulse{})
	if got := b.states(1); got[8] != fsm.Ready || len(got) != 5 {
		t.Errorf("when it is due: %v", got)
	}
}

// TestReservedNumbersAreChecked: a transaction takes only numbers that its entity has given and no message has.
func TestReservedNumbersAreChecked(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(99, 1, nil)
	b.put(1, 1, nil)
	due := b.env.Now + 60_000
	send := func(messages ...fsm.Message) fsm.Transact {
		return fsm.Transact{Sends: []fsm.SendMessages{{Entity: 1, Messages: messages}}}
	}
	b.send(1, 1, fsm.Message{})
	b.must(fsm.ReserveNumbers{Entity: 1, Count: 2})
	refuse(t, b, map[string]refusal{
		"not given":    {send(scheduledFor(due, 4)), fsm.InvalidArgument},
		"taken":        {send(scheduledFor(due, 1)), fsm.InvalidArgument},
		"twice":        {send(scheduledFor(due, 2), scheduledFor(due, 2)), fsm.InvalidArgument},
		"without time": {send(scheduledFor(0, 2)), fsm.InvalidArgument},
	})
	for name, c := range map[string]fsm.ReserveNumbers{"none": {Entity: 1}, "too many": {Entity: 1, Count: 101}} {
		if code := b.do(c).Code; code != fsm.InvalidArgument {
			t.Errorf("%s: %v", name, code)
		}
	}
	if code := b.do(fsm.ReserveNumbers{Entity: 5, Count: 1}).Code; code != fsm.EntityNotFound {
		t.Errorf("an entity that is not there: %v", code)
	}
}

// TestTransactionCancelsAndSetsStates: cancellations and states of sessions are performed with the rest of a transaction, or
// not at all.
func TestTransactionCancelsAndSetsStates(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(99, 1, nil)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.RequiresSession, s.MaxMessageBytes = true, 100 })
	held := b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "s"}).Session
	due := b.env.Now + 60_000
	b.send(1, 2, fsm.Message{HasSession: true, EnqueueAt: due})
	state := fsm.SetSessionState{Entity: 1, Lock: held, State: []byte("new")}
	lost, large := state, state
	lost.Lock.Epoch++
	large.State = make([]byte, 101)
	cancel := fsm.CancelScheduled{Entity: 1, Sequences: []fsm.SequenceNumber{1}}
	refuse(t, b, map[string]refusal{
		"not scheduled":     {fsm.Transact{Cancels: []fsm.CancelScheduled{cancel, {Entity: 1, Sequences: []fsm.SequenceNumber{7}}}}, fsm.MessageNotFound},
		"no entity":         {fsm.Transact{Cancels: []fsm.CancelScheduled{{Entity: 5, Sequences: []fsm.SequenceNumber{1}}}}, fsm.EntityNotFound},
		"session lost":      {fsm.Transact{Cancels: []fsm.CancelScheduled{cancel}, States: []fsm.SetSessionState{lost}}, fsm.SessionLockLost},
		"state too large":   {fsm.Transact{States: []fsm.SetSessionState{large}}, fsm.MessageTooLarge},
		"two states of one": {fsm.Transact{States: []fsm.SetSessionState{state, state}}, fsm.InvalidArgument},
	})
	b.must(fsm.Transact{Cancels: []fsm.CancelScheduled{cancel, cancel}, States: []fsm.SetSessionState{state}})
	if _, set, code := b.q.SessionState(1, held); !set || code != fsm.OK {
		t.Errorf("the state: %v %v", set, code)
	}
	if got := b.states(1); !slices.Equal([]fsm.MessageState{got[1], got[2]}, []fsm.MessageState{0, fsm.Scheduled}) {
		t.Errorf("scheduled: %v", got)
	}
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("an image loses something")
	}
}

// TestTransferredMessagesAreScheduledUnderReservedNumbers: a message that a transaction schedules in another partition
// leaves at once, and waits at its destination under its number, or under the next one if it has none.
func TestTransferredMessagesAreScheduledUnderReservedNumbers(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.must(fsm.PutEntity{Entity: 3, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity})
	due := b.env.Now + 60_000
	c := fsm.Transact{Transfers: []fsm.TransferOut{postOf(1, elsewhere, "e", "later", "now", "without a number")}}
	c.Transfers[0].Messages[0], c.Transfers[0].Messages[2] = scheduledFor(due, 2), scheduledFor(due, 0)
	b.must(c)
	taken := b.must(fsm.ForwardMessages{Address: fsm.Address{Entity: 1, Sub: fsm.TransferQueue}, To: elsewhere, Max: 9, MaxBytes: 1000})
	if len(taken.Deliveries) != 3 {
		t.Fatalf("%d messages leave, want 3", len(taken.Deliveries))
	}
	if p := b.patches(taken.Deliveries[2])[0]; p.To != elsewhere || p.ToNumber != 0 || p.ToTime != due {
		t.Errorf("patch without a number: %+v", p)
	}
	if p := b.patches(taken.Deliveries[0])[0]; p.To != elsewhere || p.ToNumber != 2 || p.ToTime != due {
		t.Errorf("patch %+v", p)
	}
	b.must(fsm.ForwardMessages{Address: fsm.Address{Entity: 1, Sub: fsm.TransferQueue}, Done: taken.Serial, Codes: []fsm.Code{fsm.EntityNotFound, fsm.OK, fsm.OK}})
	if n := b.counts(1).TransferDeadLetter; n != 1 {
		t.Errorf("%d dead letters", n)
	}
	for _, id := range []fsm.EntityID{1, 3} {
		first := b.must(fsm.ReserveNumbers{Entity: id, Count: 2}).Sequence
		arriving := fsm.TransferMessages{Entity: id, Source: fsm.Outbox{Partition: 2, Address: fsm.Address{Entity: 5, Sub: fsm.TransferQueue}}, Serial: 1}
		for i, n := range []fsm.SequenceNumber{first + 1, first + 1, first + 50, 0} { // the others take the next numbers
			arriving.Messages = append(arriving.Messages, fsm.Transferred{Message: scheduledFor(due, n), Number: fsm.SequenceNumber(i + 1)})
		}
		b.must(arriving)
		b.must(arriving)
		got := b.states(id)
		if id == 3 {
			if n := b.counts(3).Scheduled; n != 4 {
				t.Errorf("%d scheduled at the topic, want 4", n)
			}
			continue
		}
		want := map[fsm.SequenceNumber]fsm.MessageState{first + 1: fsm.Scheduled, first + 2: fsm.Scheduled, first + 3: fsm.Scheduled, first + 4: fsm.Scheduled}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestNumberOfADeadLetterIsTaken: after a restore, a number that was reserved before may be that of a dead letter, which
// returns to the main queue under it. A transaction is refused, a message of another partition takes the next number.
func TestNumberOfADeadLetterIsTaken(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.must(fsm.RaiseLevel{Level: fsm.FormatLevel})
	b.put(99, 1, nil)
	b.put(1, 1, nil)
	b.send(1, 1, fsm.Message{Payload: []byte("first")})
	got := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, MaxBytes: 1000})
	b.must(fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: fsm.SettleAll(got.Deliveries, fsm.DeadLetter)})
	due := b.env.Now + 60_000
	refuse(t, b, map[string]refusal{
		"of a dead letter": {fsm.Transact{Sends: []fsm.SendMessages{{Entity: 1, Messages: []fsm.Message{scheduledFor(due, 1)}}}}, fsm.InvalidArgument},
	})
	b.must(fsm.TransferMessages{
		Entity: 1, Source: fsm.Outbox{Partition: 3, Address: fsm.Address{Entity: 300, Sub: fsm.TransferQueue}}, Epoch: 9, Serial: 1,
		Messages: []fsm.Transferred{{Message: scheduledFor(due, 1), Number: 7}},
	})
	if n := b.must(fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{1}}).Count; n != 1 {
		t.Errorf("%d messages are redriven, want 1", n)
	}
	if diff := cmp.Diff(map[fsm.SequenceNumber]fsm.MessageState{1: fsm.Ready, 2: fsm.Scheduled}, b.states(1)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("a replica that loads an image of this state differs from the others")
	}
}
