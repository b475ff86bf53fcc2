package fsm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
)

// exampleTransact has every field set.
func exampleTransact() fsm.Command {
	dead := fsm.Address{Entity: 300, Sub: fsm.DeadLetterQueue}
	return fsm.Transact{
		Settles: []fsm.SettleMessages{
			{Address: dead, Settlements: []fsm.Settlement{{Lock: fsm.LockID{Sequence: 1, Epoch: 2}, Verb: fsm.Complete, Properties: []byte{}}}},
			{Address: fsm.Address{Entity: 301}, Settlements: []fsm.Settlement{
				{Lock: fsm.LockID{Sequence: 1 << 40, Epoch: 3}, Verb: fsm.DeadLetter, Reason: "r", Description: "d", Properties: []byte("p")},
				{Lock: fsm.LockID{Sequence: 5, Epoch: 1}, Verb: fsm.Abandon, Until: 1_800_000_000_000, Properties: []byte{}},
			}},
		},
		Sends: []fsm.SendMessages{
			{Entity: 300, Messages: []fsm.Message{
				{ID: "m1", Payload: []byte("hello"), Properties: []byte{}},
				{Payload: []byte{}, TimeToLive: 60_000, EnqueueAt: 1_800_000_000_000, Properties: []byte{}, Session: "s", HasSession: true},
			}},
			{Entity: 301, Messages: []fsm.Message{{Payload: []byte("x"), Properties: []byte{}}}},
		},
		Transfers: []fsm.TransferOut{{
			Via: 300, To: fsm.Destination{Partition: 3, Entity: 1 << 50}, Name: "billing/eu",
			Messages: []fsm.Message{{ID: "m2", Payload: []byte("far"), TimeToLive: 5, Properties: []byte{}}},
		}},
	}
}

// postOf is a transaction that sends messages to elsewhere.
func postOf(via fsm.EntityID, to fsm.Destination, name string, payloads ...string) fsm.TransferOut {
	c := fsm.TransferOut{Via: via, To: to, Name: name}
	for _, p := range payloads {
		c.Messages = append(c.Messages, fsm.Message{Payload: []byte(p)})
	}
	return c
}

// transactSome leaves queue 50 with transfers that wait, are in flight, and could not be delivered,
// and a subscription and a topic that have some too.
func transactSome(apply func(fsm.Command) fsm.Result) {
	apply(fsm.PutEntity{Entity: 50, Version: 1, Settings: fsm.DefaultSettings()})
	apply(fsm.SendMessages{Entity: 50, Messages: []fsm.Message{{Payload: []byte("in")}}})
	lock := apply(fsm.LockMessages{Address: fsm.Address{Entity: 50}, Max: 1}).Deliveries[0].Lock
	apply(fsm.Transact{
		Settles:   []fsm.SettleMessages{{Address: fsm.Address{Entity: 50}, Settlements: []fsm.Settlement{{Lock: lock, Verb: fsm.Complete}}}},
		Sends:     []fsm.SendMessages{{Entity: 7, Messages: []fsm.Message{{ID: "f"}, {ID: "t"}}}},
		Transfers: []fsm.TransferOut{postOf(50, elsewhere, "b", "1", "2", "3"), postOf(50, farther, "c", "4"), postOf(30, farther, "c", "5"), postOf(31, farther, "c", "6")},
	})
	arrived := transferOf(1, fsm.Transferred{Message: fsm.Message{Payload: []byte("from afar")}})
	arrived.Entity, arrived.Source.Address.Sub = 50, fsm.TransferQueue
	apply(arrived)
	for _, id := range []fsm.EntityID{50, 30, 31} {
		f := take(id, 1)
		f.Address.Sub = fsm.TransferQueue
		apply(f)
		f.Done, f.Codes, f.Max = 1, []fsm.Code{fsm.EntityNotFound}, 1
		apply(f)
	}
}

var farther = fsm.Destination{Partition: 3, Entity: 78}

// tryTransactions returns commands for a state machine in the state that transactSome leaves.
func tryTransactions() []fsm.Command {
	first := take(50, 9)
	first.Address.Sub, first.Done, first.Codes = fsm.TransferQueue, 2, []fsm.Code{fsm.QuotaExceeded}
	second := first
	second.Done, second.Codes = 3, nil
	transact := fsm.Transact{
		Settles: []fsm.SettleMessages{{Address: fsm.Address{Entity: 40}, Settlements: []fsm.Settlement{
			{Lock: fsm.LockID{Sequence: 1, Epoch: 1}, Verb: fsm.Abandon, Properties: []byte("p")},
		}}},
		Sends: []fsm.SendMessages{
			{Entity: 40, Messages: []fsm.Message{{Session: "new", HasSession: true}}},
			{Entity: 5, Messages: make([]fsm.Message, 3)},
			{Entity: 30, Messages: []fsm.Message{{Payload: []byte("published")}}},
		},
		Transfers: []fsm.TransferOut{postOf(20, farther, "c", "7"), postOf(40, elsewhere, "b", "8")},
	}
	return []fsm.Command{first, second, transact}
}

// TestLimitsOfTransactionsHold: every limit of a transaction, met and passed by one, in whatever way
// it is checked.
func TestLimitsOfTransactionsHold(t *testing.T) {
	t.Parallel()
	at := fsm.Address{Entity: 1}
	settles := func(n int, verb fsm.Verb) []fsm.SettleMessages {
		c := fsm.SettleMessages{Address: at, Settlements: make([]fsm.Settlement, n)}
		for i := range c.Settlements {
			c.Settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1}, Verb: verb}
		}
		return []fsm.SettleMessages{c}
	}
	sends := func(n int) []fsm.SendMessages {
		return []fsm.SendMessages{{Entity: 1, Messages: make([]fsm.Message, n)}}
	}
	posts := func(n int, change func(*fsm.TransferOut)) []fsm.TransferOut {
		c := fsm.TransferOut{Via: 1, To: elsewhere, Messages: make([]fsm.Message, n)}
		if change != nil {
			change(&c)
		}
		return []fsm.TransferOut{c}
	}
	for _, c := range []struct {
		name    string
		command fsm.Transact
		valid   bool
	}{
		{"100 sends and a settlement", fsm.Transact{Settles: settles(1, fsm.Complete), Sends: sends(80), Transfers: posts(20, nil)}, true},
		{"101 sends", fsm.Transact{Settles: settles(1, fsm.Complete), Sends: sends(81), Transfers: posts(20, nil)}, false},
		{"1000 settlements", fsm.Transact{Settles: settles(1000, fsm.Defer)}, true},
		{"1001 settlements", fsm.Transact{Settles: settles(1001, fsm.Defer)}, false},
		{"100 messages", fsm.Transact{Sends: sends(100)}, true},
		{"101 messages", fsm.Transact{Sends: sends(101)}, false},
		{"100 transfers", fsm.Transact{Transfers: posts(100, nil)}, true},
		{"101 transfers", fsm.Transact{Transfers: posts(101, nil)}, false},
		{"nothing", fsm.Transact{}, false},
		{"an empty settlement", fsm.Transact{Settles: settles(0, 0), Sends: sends(1)}, false},
		{"an empty send", fsm.Transact{Settles: settles(1, fsm.Complete), Sends: sends(0)}, false},
		{"an empty transfer", fsm.Transact{Sends: sends(1), Transfers: posts(0, nil)}, false},
		{"a release", fsm.Transact{Settles: settles(1, fsm.Release)}, false},
		{"no verb", fsm.Transact{Settles: settles(1, 0)}, false},
		{"a settlement in a transfer queue", fsm.Transact{Settles: []fsm.SettleMessages{{
			Address: fsm.Address{Entity: 1, Sub: fsm.TransferQueue}, Settlements: settles(1, fsm.Complete)[0].Settlements,
		}}}, false},
		{"a transfer for later", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Messages[0].EnqueueAt = 1 })}, true},
		{"via nothing", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Via = 0 })}, false},
		{"to no entity", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.To.Entity = 0 })}, false},
		{"to the catalog", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.To.Partition = 0 })}, false},
		{"longest name", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Name = strings.Repeat("n", 260) })}, true},
		{"name", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Name = strings.Repeat("n", 261) })}, false},
		{"id", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Messages[0].ID = strings.Repeat("n", 513) })}, false},
		{"session", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) {
			c.Messages[0].Session, c.Messages[0].HasSession = strings.Repeat("n", 513), true
		})}, false},
		{"properties", fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Messages[0].Properties = []byte("?") })}, false},
	} {
		want := fsm.InvalidArgument
		if c.valid {
			want = fsm.OK
		}
		if got := fsm.Check(c.command); got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
		b := fsm.AppendCommand(nil, header, c.command)
		if err := verify(b); c.valid != (err == nil) {
			t.Errorf("%s: verifies with %v", c.name, err)
		}
		if _, _, err := fsm.DecodeCommand(b); c.valid != (err == nil) || err != nil && !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("%s: decodes with %v", c.name, err)
		}
		// The state machine refuses it, too.
		m := newBetween(t)
		m.put(1, 1, nil)
		m.send(1, 1000, fsm.Message{})
		m.must(fsm.LockMessages{Address: at, Max: 1000, MaxBytes: 1 << 20})
		before := m.q.Digest()
		if got := m.do(c.command).Code; got != want {
			t.Errorf("%s: applied with %v, want %v", c.name, got, want)
		}
		if !c.valid && m.q.Digest() != before {
			t.Errorf("%s: what is refused changed something", c.name)
		}
	}
	large := fsm.Transact{Transfers: posts(1, func(c *fsm.TransferOut) { c.Messages[0].Payload = make([]byte, 100<<20+1) })} // never touched
	if code := fsm.Check(large); code != fsm.MessageTooLarge {
		t.Errorf("100 MiB and a byte: %v", code)
	}
}

// TestTransactionIsPerformedOnce: all operations are performed, the answer is remembered, and a
// repeated command is not performed again.
func TestTransactionIsPerformedOnce(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	b.put(2, 1, func(s *fsm.EntitySettings) { s.RequiresDuplicateDetection = true })
	b.send(1, 3, fsm.Message{Payload: []byte("in")})
	at := fsm.Address{Entity: 1}
	locked := b.must(fsm.LockMessages{Address: at, Max: 3, MaxBytes: 100}).Deliveries
	b.q.Effects()
	c := fsm.Transact{
		Settles: []fsm.SettleMessages{{Address: at, Settlements: []fsm.Settlement{
			{Lock: locked[0].Lock, Verb: fsm.Complete}, {Lock: locked[1].Lock, Verb: fsm.DeadLetter, Reason: "r"}, {Lock: locked[2].Lock, Verb: fsm.Defer},
		}}},
		Sends: []fsm.SendMessages{
			{Entity: 2, Messages: []fsm.Message{{ID: "a", Payload: []byte("x")}, {ID: "b"}, {ID: "a"}}},
			{Entity: 1, Messages: []fsm.Message{{Payload: []byte("y")}}},
			{Entity: 2, Messages: []fsm.Message{{ID: "b"}, {ID: "c", EnqueueAt: b.env.Now + 5000}}},
		},
		Transfers: []fsm.TransferOut{postOf(1, elsewhere, "b", "far")},
	}
	command := fsm.AppendCommand(nil, fsm.Header{Incarnation: 9, Serial: 1, Low: 1}, c)
	want := fsm.Result{Sequences: []fsm.SequenceNumber{1, 2, 0, 4, 0, 3}}
	for i := range 3 {
		b.env.Index++
		res := b.q.Apply(oneTime(b.env), command)
		if diff := cmp.Diff(want, res, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		for id, want := range map[fsm.EntityID]fsm.Counts{
			1: {Active: 1, Deferred: 1, DeadLetter: 1, Transfer: 1, Bytes: 8},
			2: {Active: 2, Scheduled: 1, Bytes: 1},
		} {
			if diff := cmp.Diff(want, b.counts(id), cmpopts.IgnoreFields(fsm.Counts{}, "LastUse")); diff != "" {
				t.Fatalf("%d (-want +got):\n%s", id, diff)
			}
		}
		urge := fsm.Effect{Address: fsm.Address{Entity: 1, Sub: fsm.TransferQueue}, Ready: 1, Kind: fsm.EffectForward}
		if urged := slices.Contains(b.q.Effects(), urge); urged != (i == 0) {
			t.Errorf("turn %d: urged to forward: %v", i, urged)
		}
		if list := b.q.Outboxes(); len(list) != 1 || list[0] != urge.Address {
			t.Errorf("outboxes %v", list)
		}
		b.replica = b.restored()
	}
}

// refusal is one transaction that is refused.
type refusal struct {
	c    fsm.Transact
	want fsm.Code
}

// refuse tries transactions that are refused, each with something in front that could be
// done.
func refuse(t *testing.T, b *between, list map[string]refusal) {
	t.Helper()
	before := b.image()
	for name, x := range list {
		x.c.Sends = append([]fsm.SendMessages{{Entity: 99, Messages: make([]fsm.Message, 1)}}, x.c.Sends...)
		if res := b.do(x.c); res.Code != x.want || res.Sequences != nil {
			t.Errorf("%s: %v %v, want %v", name, res.Code, res.Sequences, x.want)
		}
		if string(b.image()) != string(before) {
			t.Fatalf("%s: what is refused changed something", name)
		}
	}
}

func settleIn(at fsm.Address, verb fsm.Verb, locks ...fsm.LockID) fsm.SettleMessages {
	c := fsm.SettleMessages{Address: at}
	for _, l := range locks {
		c.Settlements = append(c.Settlements, fsm.Settlement{Lock: l, Verb: verb})
	}
	return c
}

// TestTransactSettlesAllOrNone: one lost lock refuses the whole transaction.
func TestTransactSettlesAllOrNone(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(99, 1, nil)
	b.put(1, 1, nil)
	b.put(40, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	b.must(fsm.PutEntity{Entity: 30, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity})
	b.send(1, 4, fsm.Message{})
	b.send(40, 3, fsm.Message{HasSession: true})
	at, dead := fsm.Address{Entity: 1}, fsm.Address{Entity: 1, Sub: fsm.DeadLetterQueue}
	var l []fsm.LockID
	for _, d := range b.must(fsm.LockMessages{Address: at, Max: 4, MaxBytes: 100}).Deliveries {
		l = append(l, d.Lock)
	}
	b.must(settleIn(at, fsm.DeadLetter, l[3]))
	buried := b.must(fsm.LockMessages{Address: dead, Max: 1}).Deliveries[0].Lock
	accepted := b.must(fsm.AcceptSession{Entity: 40, Named: true}).Session
	grouped := fsm.Address{Entity: 40}
	back := b.must(fsm.LockMessages{Address: grouped, Max: 1, Session: accepted}).Deliveries[0].Lock
	b.must(fsm.ReleaseSession{Entity: 40, Lock: accepted})
	old := l[0]
	old.Epoch++
	big := fsm.Settlement{Lock: l[1], Verb: fsm.Defer, Properties: make([]byte, 40_000)}
	b.must(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: l[1], Verb: fsm.Abandon, Properties: big.Properties}}})
	big.Lock = b.must(fsm.LockMessages{Address: at, Max: 1}).Deliveries[0].Lock
	one := func(list ...fsm.SettleMessages) fsm.Transact { return fsm.Transact{Settles: list} }
	refuse(t, b, map[string]refusal{
		"other epoch":   {one(settleIn(at, fsm.Complete, l[2], old)), fsm.MessageLockLost},
		"twice":         {one(settleIn(at, fsm.Complete, l[2], l[0], l[2])), fsm.MessageLockLost},
		"twice apart":   {one(settleIn(at, fsm.Complete, l[2]), settleIn(dead, fsm.Complete, buried), settleIn(at, fsm.Defer, l[2])), fsm.MessageLockLost},
		"there is none": {one(settleIn(at, fsm.Complete, fsm.LockID{Sequence: 50, Epoch: 1})), fsm.MessageLockLost},
		"never again":   {one(settleIn(at, fsm.Complete, l[2]), settleIn(dead, fsm.DeadLetter, buried)), fsm.NotAllowed},
		"released":      {one(settleIn(at, fsm.Release, l[2])), fsm.InvalidArgument},
		"no entity":     {one(settleIn(fsm.Address{Entity: 3}, fsm.Complete, l[2])), fsm.EntityNotFound},
		"a topic":       {one(settleIn(fsm.Address{Entity: 30}, fsm.Complete, l[2])), fsm.NotAllowed},
		"session gone":  {one(settleIn(at, fsm.Complete, l[2]), settleIn(grouped, fsm.Complete, back)), fsm.SessionLockLost},
		"no such there": {one(settleIn(grouped, fsm.Complete, fsm.LockID{Sequence: 50, Epoch: 1})), fsm.MessageLockLost},
		"properties":    {one(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{big}}), fsm.InvalidArgument},
		"8 days": {one(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{
			{Lock: l[2], Verb: fsm.Abandon, Until: b.env.Now + 8*24*3600*1000},
		}}), fsm.InvalidArgument},
	})
	if got := b.do(one(settleIn(at, fsm.Complete, l[2], l[0]), settleIn(dead, fsm.Complete, buried), settleIn(at, fsm.Abandon, big.Lock))); got.Code != fsm.OK {
		t.Errorf("what can be done: %v", got.Code)
	}
	if c := b.counts(1); c.Active != 1 || c.DeadLetter != 0 {
		t.Errorf("afterwards %+v", c)
	}
}

// TestTransactSendsAllOrNone: sent messages count together, completed ones make room.
func TestTransactSendsAllOrNone(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	b := newBetween(t)
	b.put(99, 1, nil)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.MaxBytes = mega; s.MaxMessageBytes = mega - 1 })
	b.put(2, 1, func(s *fsm.EntitySettings) { s.MaxBytes = mega; s.RequiresDuplicateDetection = true })
	b.put(3, 1, func(s *fsm.EntitySettings) { s.Status = fsm.SendDisabled })
	b.put(40, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	topic := fsm.PutEntity{Entity: 30, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.TopicEntity}
	topic.Settings.MaxBytes = mega
	b.must(topic)
	for id := fsm.EntityID(31); id < 33; id++ {
		b.must(fsm.PutEntity{Entity: id, Version: 1, Settings: fsm.DefaultSettings(), Kind: fsm.SubscriptionEntity, Topic: 30})
	}
	b.send(1, 1, fsm.Message{Payload: make([]byte, mega-100)})
	b.send(30, 1, fsm.Message{Payload: make([]byte, mega-100)})
	var l [3]fsm.LockID
	for i, id := range []fsm.EntityID{1, 31, 32} {
		l[i] = b.must(fsm.LockMessages{Address: fsm.Address{Entity: id}, Max: 1}).Deliveries[0].Lock
	}
	send := func(id fsm.EntityID, name string, size int) fsm.SendMessages {
		return fsm.SendMessages{Entity: id, Messages: []fsm.Message{{ID: name, Payload: make([]byte, size)}}}
	}
	sends := func(list ...fsm.SendMessages) fsm.Transact { return fsm.Transact{Sends: list} }
	complete := func(c fsm.Transact, list ...int) fsm.Transact {
		for _, i := range list {
			c.Settles = append(c.Settles, settleIn(fsm.Address{Entity: []fsm.EntityID{1, 31, 32}[i]}, fsm.Complete, l[i]))
		}
		return c
	}
	posts := func(c fsm.Transact, via fsm.EntityID, size int) fsm.Transact {
		c.Transfers = append(c.Transfers, postOf(via, elsewhere, "b", string(make([]byte, size))))
		return c
	}
	refuse(t, b, map[string]refusal{
		"together too much":      {sends(send(1, "", 60), send(2, "", 1), send(1, "", 41)), fsm.QuotaExceeded},
		"with a transfer":        {posts(sends(send(1, "", 60)), 1, 41), fsm.QuotaExceeded},
		"two transfers":          {posts(posts(sends(), 1, 60), 1, 41), fsm.QuotaExceeded},
		"of two different ids":   {sends(send(2, "a", mega-1), send(2, "b", 2)), fsm.QuotaExceeded},
		"after a completion":     {complete(sends(send(1, "", mega-1), send(1, "", 2)), 0), fsm.QuotaExceeded},
		"a copy of two":          {complete(sends(send(30, "", 101)), 1), fsm.QuotaExceeded},
		"via a subscription":     {posts(sends(send(30, "", 60)), 31, 41), fsm.QuotaExceeded},
		"too large":              {sends(send(1, "", mega+257)), fsm.MessageTooLarge},
		"disabled":               {sends(send(1, "", 1), send(3, "", 1)), fsm.EntityDisabled},
		"not there":              {sends(send(1, "", 1), send(4, "", 1)), fsm.EntityNotFound},
		"to a subscription":      {sends(send(31, "", 1)), fsm.NotAllowed},
		"without session":        {sends(send(40, "", 1)), fsm.NotAllowed},
		"via nothing":            {posts(sends(), 4, 1), fsm.EntityNotFound},
		"the earlier one counts": {sends(send(4, "", 1), send(3, "", 1)), fsm.EntityNotFound},
	})
	for name, c := range map[string]fsm.Transact{
		"as much as fits":   posts(sends(send(2, "a", mega-2), send(2, "a", mega-2), send(2, "b", 1)), 2, 1),
		"in its place":      posts(complete(sends(send(1, "", mega-1)), 0), 1, 1),
		"after both copies": complete(sends(send(30, "", mega-1)), 1, 2),
		"via disabled":      posts(sends(), 3, 1),
	} {
		if res := b.do(c); res.Code != fsm.OK {
			t.Errorf("%s: %v", name, res.Code)
		}
	}
	for _, id := range []fsm.EntityID{1, 2} {
		if c := b.counts(id); c.Bytes != mega {
			t.Errorf("%d: %+v", id, c)
		}
	}
}

// TestSessionsOfATransactionCountTogether: sessions that a transaction opens count together.
func TestSessionsOfATransactionCountTogether(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(40, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	c := fsm.Transact{Sends: []fsm.SendMessages{{Entity: 40}, {Entity: 40}}}
	for i := range 20 {
		c.Sends[i%2].Messages = append(c.Sends[i%2].Messages, fsm.Message{Session: fmt.Sprint(i / 2), HasSession: true})
	}
	if res := b.must(c); len(res.Sequences) != 20 || res.Sequences[10] != 11 || b.counts(40).Sessions != 10 {
		t.Errorf("%v %+v", res.Sequences, b.counts(40))
	}
	locked := b.must(fsm.AcceptSession{Entity: 40, Named: true, ID: "3"}).Session
	at := fsm.Address{Entity: 40}
	got := b.must(fsm.LockMessages{Address: at, Max: 2, MaxBytes: 10, Session: locked}).Deliveries
	b.must(fsm.Transact{
		Settles:   []fsm.SettleMessages{settleIn(at, fsm.Complete, got[0].Lock), settleIn(at, fsm.Defer, got[1].Lock)},
		Transfers: []fsm.TransferOut{postOf(40, elsewhere, "b", "1")},
	})
	b.replica = b.restored()
	if c := b.counts(40); c.Deferred != 1 || c.Transfer != 1 || c.Sessions != 10 {
		t.Errorf("%+v", c)
	}
}

// TestTransactIsActivity: an entity that a transaction settles in or sends to is not idle
// (docs/requirements.md#e8).
func TestTransactIsActivity(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	for id := fsm.EntityID(1); id <= 2; id++ {
		b.put(id, 1, func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 300_000; s.LockDuration = 300_000 })
	}
	b.send(1, 1, fsm.Message{})
	lock := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1}).Deliveries[0].Lock
	b.env.Now += 200_000
	b.must(fsm.Transact{
		Settles: []fsm.SettleMessages{settleIn(fsm.Address{Entity: 1}, fsm.Complete, lock)},
		Sends:   []fsm.SendMessages{{Entity: 2, Messages: make([]fsm.Message, 1)}},
	})
	b.env.Now += 299_999
	if b.must(fsm.Pulse{}); b.q.Entities() != 2 {
		t.Fatal("one is gone too early")
	}
	b.env.Now++
	if b.must(fsm.Pulse{}); b.q.Entities() != 0 {
		t.Error("one stays")
	}
}

// TestCheckedLocksAreThoseThatATransactionSettles: CheckLocks gives the codes with which a transaction would be refused.
func TestCheckedLocksAreThoseThatATransactionSettles(t *testing.T) {
	t.Parallel()
	for _, sessions := range []bool{false, true} {
		b := newBetween(t)
		settings := fsm.DefaultSettings()
		settings.RequiresSession = sessions
		at := fsm.Address{Entity: 1}
		b.do(fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
		lock := fsm.LockMessages{Address: at, Max: 3, MaxBytes: 1 << 20}
		message := fsm.Message{Payload: []byte("x"), HasSession: sessions}
		b.do(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{message, message, message}})
		if sessions {
			lock.Session = b.do(fsm.AcceptSession{Entity: 1}).Session
		}
		locked := b.do(lock).Deliveries
		b.do(fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: locked[1].Lock, Verb: fsm.Complete}, {Lock: locked[2].Lock, Verb: fsm.Release}}})
		returned := fsm.MessageLockLost
		if sessions {
			returned = fsm.SessionLockLost
		}
		got := b.q.CheckLocks(at, []fsm.LockID{locked[0].Lock, locked[1].Lock, locked[2].Lock, {Sequence: 99}})
		if diff := cmp.Diff([]fsm.Code{fsm.OK, fsm.MessageLockLost, returned, fsm.MessageLockLost}, got); diff != "" {
			t.Error(diff)
		}
		if got := b.q.CheckLocks(fsm.Address{Entity: 2}, []fsm.LockID{locked[0].Lock}); got[0] != fsm.EntityNotFound {
			t.Errorf("an entity that is not there: %v", got)
		}
	}
}
