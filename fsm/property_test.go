package fsm_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

// replica is one state machine with bodies of its own.
type replica struct {
	q      *queue.Machine
	bodies *memory
}

func newReplica(t testing.TB) *replica {
	m := newMemory(t)
	return &replica{q: queue.New(m), bodies: m}
}

// show brings a result to the form of the model, bodies read.
func (r *replica) show(res fsm.Result) modelResult {
	return modelResult{
		Code: res.Code, Sequence: res.Sequence, Codes: res.Codes, Untils: res.Untils,
		Count: res.Count, Sequences: res.Sequences,
		Deliveries: r.list(res.Deliveries),
	}
}

func (r *replica) list(deliveries []fsm.Delivery) []string {
	var list []string
	for _, d := range deliveries {
		m := shown{
			lock: d.Lock, state: d.State, attempts: d.FailedDeliveries, enqueued: d.Enqueued, until: d.LockedUntil, expires: d.Expires,
			payload: string(r.bodies.Read(d.Body)), topic: d.Topic,
		}
		if d.Patch != (fsm.Ref{}) {
			patches, err := fsm.DecodePatches(r.bodies.Read(d.Patch))
			if err != nil {
				r.bodies.t.Fatal(err)
			}
			m.patches = patches
		}
		list = append(list, m.String())
	}
	return list
}

func (r *replica) image() []byte {
	var b bytes.Buffer
	if _, err := r.q.Image().WriteTo(&b); err != nil {
		r.bodies.t.Fatal(err)
	}
	return b.Bytes()
}

// restored returns the replica that an image of r becomes, on a disk where bodies have other
// locations.
func (r *replica) restored() *replica {
	next := newReplica(r.bodies.t)
	next.bodies.next = r.bodies.next + 1000
	if err := next.q.Restore(bytes.NewReader(r.image())); err != nil {
		r.bodies.t.Fatal(err)
	}
	next.q.Refs(func(o fsm.Owner, old fsm.Ref) fsm.Ref { return next.bodies.Append(o, r.bodies.Read(old)) })
	return next
}

// history draws commands against the state it has seen and applies them to two equal
// replicas, one that is restored from its own image every now and then, and the model.
type history struct {
	t       *rapid.T
	a, b, c *replica
	model   *model
	env     fsm.Env
	serials map[[2]uint64]uint64
	past    [][]byte
	locks   []fsm.LockID // every lock ever granted, at the address of the same index
	at      []fsm.Address
	version uint64
	sent    map[fsm.EntityID]int
	frozen  fsm.Image
	bytes   []byte // of frozen when it was taken
}

func (h *history) header() fsm.Header {
	key := [2]uint64{rapid.Uint64Range(0, 2).Draw(h.t, "origin"), rapid.Uint64Range(0, 2).Draw(h.t, "receiver")}
	if key[0] == 0 {
		return fsm.Header{}
	}
	h.serials[key]++
	serial := h.serials[key]
	return fsm.Header{Incarnation: key[0], Receiver: key[1], Serial: serial, Low: serial - min(serial, rapid.Uint64Range(0, 3).Draw(h.t, "kept"))}
}

func (h *history) address() fsm.Address {
	return fsm.Address{
		Entity: fsm.EntityID(rapid.SampledFrom([]int{1, 2, 3, topicID, topicID + 1, topicID + 1, topicID + 2}).Draw(h.t, "entity")),
		Sub:    fsm.SubQueue(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(h.t, "sub")),
	}
}

// lock draws a lock, mostly a real and often a late one, and where it was granted.
func (h *history) lock() (fsm.LockID, fsm.Address) {
	if len(h.locks) == 0 {
		return fsm.LockID{Sequence: 1, Epoch: 1}, h.address()
	}
	i := len(h.locks) - 1 - rapid.IntRange(0, min(20, len(h.locks)-1)).Draw(h.t, "age")
	return h.locks[i], h.at[i]
}

func (h *history) do(c fsm.Command) {
	head := h.header()
	if head.Incarnation == 0 {
		switch x := c.(type) {
		case fsm.LockMessages:
			x.Delete = false
			c = x
		case fsm.FetchDeferred:
			x.Delete = false
			c = x
		case fsm.FetchReady:
			x.Delete = false
			c = x
		}
	}
	command := fsm.AppendCommand(nil, head, c)
	h.past = append(h.past, command)
	h.apply(command)
}

func (h *history) apply(command []byte) {
	h.env.Index++
	head, c, err := fsm.DecodeCommand(command)
	if err != nil {
		h.t.Fatal(err)
	}
	want := h.model.apply(h.env, head, c)
	for i, r := range []*replica{h.a, h.b, h.c} {
		res := r.q.Apply(oneTime(h.env), command)
		if diff := cmp.Diff(want, r.show(res), cmpopts.EquateEmpty()); diff != "" {
			h.t.Fatalf("replica %d answers %T %+v otherwise than the model (-want +got):\n%s", i, c, head, diff)
		}
		if i == 0 {
			h.note(c, res)
		}
	}
}

// note remembers locks, for later settlements.
func (h *history) note(c fsm.Command, res fsm.Result) {
	at := fsm.Address{}
	switch c := c.(type) {
	case fsm.LockMessages:
		at = c.Address
	case fsm.FetchDeferred:
		at = c.Address
	case fsm.FetchReady:
		at = c.Address
	case fsm.SendMessages:
		if res.Code == fsm.OK {
			h.sent[c.Entity] += len(c.Messages)
		}
	case fsm.DropEntity:
		h.sent[c.Entity] = 0
	}
	for _, d := range res.Deliveries {
		h.locks, h.at = append(h.locks, d.Lock), append(h.at, at)
	}
}

// settings draws settings of an entity; the second one detects duplicates.
func (h *history) settings(id fsm.EntityID) fsm.EntitySettings {
	millis := func(name string, choices ...fsm.Millis) fsm.Millis { return rapid.SampledFrom(choices).Draw(h.t, name) }
	s := fsm.EntitySettings{
		LockDuration:     millis("lock", 5000, 7000, 30000),
		MaxDeliveryCount: rapid.Uint32Range(1, 4).Draw(h.t, "deliveries"), MaxMessageBytes: 6,
		DefaultTimeToLive:          millis("life", fsm.Forever, 0, 4000, 20_000),
		DeadLetterOnExpiry:         rapid.Bool().Draw(h.t, "bury"),
		RequiresDuplicateDetection: id%2 == 0,
		DeadLetterOnFilterErrors:   rapid.Bool().Draw(h.t, "keep"),
		DuplicateWindow:            millis("window", 20_000, 60_000),
		AutoDeleteOnIdle:           millis("idle", fsm.Forever, fsm.Forever, 300_000, 900_000),
		DeadLetterTimeToLive:       millis("rot", fsm.Forever, 1000, 7500),
		Status:                     rapid.SampledFrom([]fsm.EntityStatus{0, 0, 0, 0, 1, 2, 3}).Draw(h.t, "status"),
	}
	if rapid.Bool().Draw(h.t, "delays") {
		s.RetryDelay, s.RetryDelayMax = 800, millis("most", 800, 1500, 60_000)
	}
	if rapid.IntRange(0, 9).Draw(h.t, "change of mind") == 0 {
		s.RequiresDuplicateDetection = !s.RequiresDuplicateDetection
	}
	return s
}

func (h *history) put(*rapid.T) {
	h.version += rapid.Uint64Range(0, 1).Draw(h.t, "newer")
	id := h.address().Entity
	h.do(h.describe(fsm.PutEntity{Entity: id, Version: h.version, Settings: h.settings(id)}))
}

func (h *history) send(*rapid.T) {
	c := fsm.SendMessages{Entity: h.address().Entity}
	for range rapid.IntRange(1, 6).Draw(h.t, "n") {
		size := rapid.SampledFrom([]int{0, 1, 2, 3, 5, 6, 6, 7}).Draw(h.t, "size")
		if size == 7 && len(c.Messages) > 0 {
			size = 6
		}
		m := fsm.Message{ID: rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(h.t, "id"), Payload: []byte("message")[:size]}
		m.TimeToLive = rapid.SampledFrom([]fsm.Millis{0, 0, 1, 3000, 9000, fsm.Forever}).Draw(h.t, "life")
		if rapid.IntRange(0, 3).Draw(h.t, "later") == 0 {
			m.EnqueueAt = h.env.Now + fsm.Instant(rapid.IntRange(-1000, 12_000).Draw(h.t, "at"))
		}
		if c.Entity == topicID {
			m.Properties = h.properties()
		}
		c.Messages = append(c.Messages, m)
	}
	h.do(c)
}

// numbers draws sequence numbers.
func (h *history) numbers() []fsm.SequenceNumber {
	n := rapid.IntRange(1, 4).Draw(h.t, "n")
	var list []fsm.SequenceNumber
	for range n {
		list = append(list, fsm.SequenceNumber(rapid.Uint64Range(0, 40).Draw(h.t, "number")))
	}
	return list
}

// some draws numbers of messages in a state, if there are any.
func (h *history) some(a fsm.Address, state fsm.MessageState) []fsm.SequenceNumber {
	q := h.model.queues[a.Entity]
	if q == nil || rapid.IntRange(0, 4).Draw(h.t, "blind") == 0 {
		return h.numbers()
	}
	var list []fsm.SequenceNumber
	for _, x := range q.subs[a.Sub] {
		if x.state == state && rapid.Bool().Draw(h.t, "this") {
			list = append(list, x.lock.Sequence)
		}
	}
	if len(list) == 0 {
		return h.numbers()
	}
	return list
}

func (h *history) cancel(*rapid.T) {
	id := h.address().Entity
	h.do(fsm.CancelScheduled{Entity: id, Sequences: h.some(fsm.Address{Entity: id}, fsm.Scheduled)})
}

func (h *history) purge(*rapid.T) {
	c := fsm.PurgeMessages{Address: h.address(), Max: rapid.Uint32Range(1, 4).Draw(h.t, "max")}
	if rapid.Bool().Draw(h.t, "old ones") {
		c.Before = h.env.Now - fsm.Instant(rapid.IntRange(0, 8000).Draw(h.t, "age"))
	}
	h.do(c)
}

func (h *history) redrive(*rapid.T) {
	id := h.address().Entity
	h.do(fsm.RedriveMessages{Entity: id, Sequences: h.some(fsm.Address{Entity: id, Sub: fsm.DeadLetterQueue}, fsm.Ready)})
}

func (h *history) settleUnlocked(*rapid.T) {
	c := fsm.SettleUnlocked{Address: h.address(), Verb: fsm.Complete, States: rapid.SampledFrom([]fsm.StateSet{
		fsm.SetOf(fsm.Ready), fsm.SetOf(fsm.Deferred), fsm.SetOf(fsm.Scheduled), fsm.SetOf(fsm.Ready, fsm.Deferred, fsm.Scheduled),
	}).Draw(h.t, "states")}
	if rapid.Bool().Draw(h.t, "release") {
		c.Verb, c.States = fsm.Release, fsm.SetOf(fsm.Deferred)
	}
	c.Sequences = h.some(c.Address, rapid.SampledFrom([]fsm.MessageState{fsm.Ready, fsm.Locked, fsm.Deferred, fsm.Scheduled}).Draw(h.t, "state"))
	h.do(c)
}

func (h *history) touch(*rapid.T) { h.do(fsm.Touch{Entity: h.address().Entity}) }

func (h *history) receive(*rapid.T) {
	h.do(fsm.LockMessages{
		Address: h.address(), Max: rapid.Uint32Range(1, 5).Draw(h.t, "max"),
		MaxBytes: rapid.Uint32Range(0, 12).Draw(h.t, "bytes"), Delete: rapid.IntRange(0, 4).Draw(h.t, "delete") == 0,
	})
}

func (h *history) fetch(*rapid.T) {
	c := fsm.FetchDeferred{Address: h.address(), Delete: rapid.IntRange(0, 4).Draw(h.t, "delete") == 0}
	c.Sequences = h.some(c.Address, fsm.Deferred)
	h.do(c)
}

func (h *history) fetchReady(*rapid.T) {
	c := fsm.FetchReady{Address: h.address(), Delete: rapid.IntRange(0, 4).Draw(h.t, "delete") == 0}
	for _, n := range h.some(c.Address, fsm.Ready) {
		l := fsm.LockID{Sequence: n, Epoch: rapid.Uint32Range(0, 1).Draw(h.t, "epoch")}
		if q := h.model.queues[c.Address.Entity]; q != nil && rapid.IntRange(0, 4).Draw(h.t, "seen") > 0 {
			if x := q.find(c.Address.Sub, n); x != nil {
				l = x.lock
			}
		}
		c.Seen = append(c.Seen, l)
	}
	h.do(c)
}

func (h *history) settle(*rapid.T) {
	var c fsm.SettleMessages
	for range rapid.IntRange(1, 4).Draw(h.t, "n") {
		l, at := h.lock()
		c.Address = at
		s := fsm.Settlement{Lock: l, Verb: fsm.Verb(rapid.IntRange(1, 5).Draw(h.t, "verb"))}
		if s.Verb == fsm.DeadLetter {
			s.Reason = rapid.SampledFrom([]string{"", "bad"}).Draw(h.t, "reason")
		}
		if s.Verb == fsm.Abandon && rapid.Bool().Draw(h.t, "put off") {
			s.Until = h.env.Now + fsm.Instant(rapid.SampledFrom([]int{-2000, 1, 4000, 30_000, 7 * 24 * 3600 * 1000, 8 * 24 * 3600 * 1000}).Draw(h.t, "until"))
		}
		if rapid.Bool().Draw(h.t, "patched") {
			s.Properties = []byte("p")
		}
		c.Settlements = append(c.Settlements, s)
	}
	h.do(c)
}

func (h *history) renew(*rapid.T) {
	var c fsm.RenewLocks
	for range rapid.IntRange(1, 3).Draw(h.t, "n") {
		var l fsm.LockID
		l, c.Address = h.lock()
		c.Locks = append(c.Locks, l)
	}
	h.do(c)
}

func (h *history) retry(*rapid.T) {
	if n := len(h.past); n > 0 {
		h.apply(h.past[n-1-rapid.IntRange(0, min(10, n-1)).Draw(h.t, "age")])
	}
}

func (h *history) pass(*rapid.T) {
	h.advance(rapid.SampledFrom([]int{-500, 0, 1000, 3000, 5000, 10000, 400_000, 600_000}).Draw(h.t, "ms"))
	h.apply(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	for _, r := range []*replica{h.a, h.b, h.c} {
		if rest, ok := r.q.Times().Until(r.q.NextDeadline()); ok && rest <= 0 {
			h.t.Fatalf("at %v a pulse leaves something due at %v", r.q.Times(), r.q.NextDeadline())
		}
	}
}

// advance moves both times, often alike: serving time stands still in an outage, and wall time while the
// machine is ahead of it.
func (h *history) advance(ms int) {
	switch rapid.IntRange(0, 3).Draw(h.t, "timeline") {
	case 0:
		h.env.Now += fsm.Instant(ms)
	case 1:
		h.env.Serving += fsm.Instant(ms)
	default:
		h.env.Now += fsm.Instant(ms)
		h.env.Serving += fsm.Instant(ms)
	}
}

// tick lets time pass a little and no pulse come.
func (h *history) tick(*rapid.T) {
	h.advance(rapid.SampledFrom([]int{-100, 1, 500, 3000, 9000}).Draw(h.t, "ms"))
}

func (h *history) drop(*rapid.T) {
	if rapid.IntRange(0, 5).Draw(h.t, "really") == 0 {
		h.do(fsm.DropEntity{Entity: h.address().Entity})
	}
}

func (h *history) closeLane(*rapid.T) {
	h.do(fsm.CloseReceiver{Incarnation: rapid.Uint64Range(1, 2).Draw(h.t, "of"), Receiver: rapid.Uint64Range(0, 2).Draw(h.t, "gone")})
}

func (h *history) restore(*rapid.T) { h.c = h.c.restored() }

// freeze takes an image of the first replica, which must not change from then on.
func (h *history) freeze(*rapid.T) {
	h.thaw()
	h.bytes = h.a.image()
	h.frozen = h.a.q.Image()
}

func (h *history) thaw() {
	if h.frozen == nil {
		return
	}
	var b bytes.Buffer
	if _, err := h.frozen.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), h.bytes) {
		h.t.Fatalf("an image changed after it was taken (%v)", err)
	}
}

// Check compares the states.
func (h *history) Check(*rapid.T) {
	if !bytes.Equal(h.a.image(), h.b.image()) {
		h.t.Fatal("replicas hold different bytes")
	}
	if h.a.q.Digest() != h.c.q.Digest() {
		h.t.Fatal("the restored replica holds another state")
	}
	for id := fsm.EntityID(1); id <= topicID+2; id++ {
		got, _ := h.c.q.Counts(id)
		got.SQLFilters, got.CorrelationFilters, got.LastUse = 0, 0, 0 // with tests of their own
		if want := h.model.counts(id); got != want {
			h.t.Fatalf("counts of %d are %+v, want %+v", id, got, want)
		}
		if sums, found := h.c.q.Totals(id); found && sums != h.model.queues[id].totals {
			h.t.Fatalf("totals of %d are %+v, want %+v", id, sums, h.model.queues[id].totals)
		}
		for sub := fsm.MainQueue; sub <= fsm.DeadLetterQueue; sub++ {
			at := fsm.Address{Entity: id, Sub: sub}
			if diff := cmp.Diff(h.model.peek(at), h.a.list(h.a.q.Peek(at, 0, 4096))); diff != "" {
				h.t.Fatalf("%v holds something else (-want +got):\n%s", at, diff)
			}
		}
		h.checkRules(id)
	}
	for _, r := range []*replica{h.a, h.b, h.c} {
		checkStored(h.t, r.q)
		h.checkDue(r)
		h.checkBodies(r)
		if diff := cmp.Diff(h.model.gone, r.q.Tombstones(), cmpopts.EquateEmpty()); diff != "" {
			h.t.Fatalf("queues that deleted themselves (-want +got):\n%s", diff)
		}
	}
}

// checkDue: NextDeadline is never too late. It may be early: many deadlines are lower bounds, which
// pulses make exact.
func (h *history) checkDue(r *replica) {
	got, want := r.q.NextDeadline(), h.model.due()
	late := func(got, want fsm.Instant) bool { return want != 0 && (got == 0 || got > want) }
	if got != (fsm.Times{Wall: max(h.model.now, 1)}) && (late(got.Wall, want.Wall) || late(got.Serving, want.Serving)) {
		h.t.Fatalf("next deadline %v, want %v", got, want)
	}
}

// checkBodies: exactly the referenced bodies are stored.
func (h *history) checkBodies(r *replica) {
	refs := 0
	r.q.Image().Refs(func(_ fsm.Owner, ref fsm.Ref) {
		refs++
		if !r.q.Holds(r.bodies.bodies[ref].owner, ref) {
			h.t.Fatalf("the body at %v is not known as held", ref)
		}
	})
	if refs != len(r.bodies.bodies) {
		h.t.Fatalf("%d bodies are referred to, %d are held", refs, len(r.bodies.bodies))
	}
}

// TestReplicasAgree applies random histories to two replicas, to one that is restored in between
// and to the model: all answers and states are equal, bodies are neither lost nor leaked, images do
// not change.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{
			t: rt, a: newReplica(t), b: newReplica(t), c: newReplica(t), model: newModel(),
			serials: map[[2]uint64]uint64{}, sent: map[fsm.EntityID]int{}, env: fsm.Env{Now: 1_000_000}, version: 1,
		}
		h.model.now, h.model.serving, h.env.Serving = h.env.Now, h.env.Now, h.env.Now
		actions := map[string]func(*rapid.T){
			"put": h.put, "send": h.send, "send more": h.send, "receive": h.receive, "receive more": h.receive,
			"fetch": h.fetch, "fetch ready": h.fetchReady, "settle": h.settle, "settle more": h.settle, "renew": h.renew, "retry": h.retry,
			"pass": h.pass, "tick": h.tick, "tick again": h.tick, "cancel": h.cancel, "purge": h.purge,
			"rule": h.rule, "drop rule": h.dropRule, "move": h.move, "send to topic": h.publish, "subscribe": h.subscribe,
			"redrive": h.redrive, "settle unlocked": h.settleUnlocked, "touch": h.touch, "drop": h.drop, "close": h.closeLane, "restore": h.restore, "freeze": h.freeze,
			"": h.Check,
		}
		for id := fsm.EntityID(1); id <= 2; id++ {
			h.do(fsm.PutEntity{Entity: id, Version: 1, Settings: fsm.EntitySettings{
				LockDuration: 5000, MaxDeliveryCount: 3, MaxMessageBytes: 6, RequiresDuplicateDetection: id == 2,
			}})
		}
		h.do(h.describe(fsm.PutEntity{Entity: topicID, Version: 1, Settings: fsm.EntitySettings{
			LockDuration: 5000, MaxDeliveryCount: 3, MaxMessageBytes: 6, RequiresDuplicateDetection: true,
		}}))
		for name, action := range actions {
			actions[name] = func(t *rapid.T) { h.t = t; action(t) }
		}
		rt.Repeat(actions)
		h.thaw()
	})
}

// TestNoMessageIsLostOrLockedTwice checks from the outside what the model assumes: every message
// sent is stored, or was completed or received and deleted, no message is locked twice at a time,
// and failed deliveries never decrease (docs/requirements.md#e2, #c9).
func TestNoMessageIsLostOrLockedTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := newReplica(t)
		env := fsm.Env{Now: 1000}
		apply := func(c fsm.Command) fsm.Result {
			env.Index++
			return r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: env.Index, Low: env.Index}, c))
		}
		apply(fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.EntitySettings{LockDuration: 5000, MaxDeliveryCount: 3, MaxMessageBytes: 9}})
		sent, gone := uint64(0), uint64(0)
		held := map[fsm.SequenceNumber]fsm.Delivery{}
		attempts := map[fsm.SequenceNumber]uint32{}
		take := func(list []fsm.Delivery) {
			for _, d := range list {
				if other, ok := held[d.Lock.Sequence]; ok && other.LockedUntil > env.Now {
					rt.Fatalf("message %d is given to a second holder", d.Lock.Sequence)
				}
				if d.FailedDeliveries < attempts[d.Lock.Sequence] {
					rt.Fatalf("attempts of %d fell to %d", d.Lock.Sequence, d.FailedDeliveries)
				}
				held[d.Lock.Sequence], attempts[d.Lock.Sequence] = d, d.FailedDeliveries
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				n := rapid.IntRange(1, 5).Draw(t, "n")
				if res := apply(fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, n)}); res.Sequence != fsm.SequenceNumber(sent+1) {
					t.Fatalf("first number %d after %d messages", res.Sequence, sent)
				}
				sent += uint64(n)
			},
			"lock": func(t *rapid.T) {
				take(apply(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: rapid.Uint32Range(1, 9).Draw(t, "n")}).Deliveries)
			},
			"fetch ready": func(t *rapid.T) {
				c := fsm.FetchReady{Address: fsm.Address{Entity: 1}}
				for _, d := range r.q.Peek(c.Address, fsm.SequenceNumber(rapid.Uint64Range(0, sent).Draw(t, "from")), 9) {
					c.Seen = append(c.Seen, d.Lock)
				}
				if c.Seen != nil {
					take(apply(c).Deliveries)
				}
			},
			"settle": func(t *rapid.T) {
				n := fsm.SequenceNumber(rapid.Uint64Range(1, sent+1).Draw(t, "number"))
				d, ok := held[n]
				if !ok {
					return
				}
				verb := fsm.Verb(rapid.IntRange(1, 5).Draw(t, "verb"))
				res := apply(fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: verb}}})
				if res.Codes[0] == fsm.OK {
					delete(held, n)
					if verb == fsm.Complete {
						gone++
					}
				}
			},
			"pass": func(t *rapid.T) {
				env.Now += fsm.Instant(rapid.IntRange(0, 9000).Draw(t, "ms"))
				apply(fsm.Pulse{})
			},
			"": func(t *rapid.T) {
				c, _ := r.q.Counts(1)
				if c.Active+c.Deferred+c.DeadLetter+gone != sent || r.q.Messages()+gone != sent {
					t.Fatalf("%d sent, %d completed, but %s", sent, gone, fmt.Sprint(c))
				}
			},
		})
	})
}
