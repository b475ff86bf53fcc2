package fsm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// replicaPair are two replicas that apply the same commands, one of which is restored from its own
// image now and then. There is no model: they must answer alike, whatever the answer is.
type replicaPair struct {
	t        *testing.T
	r        *rand.Rand
	a, b     *replica
	env      fsm.Env
	serial   map[uint64]uint64
	version  uint64
	locks    map[fsm.Address][]fsm.LockID
	sessions map[fsm.EntityID][]fsm.SessionLock
	numbers  map[fsm.Address][]fsm.SequenceNumber
	last     []byte // a command, to come again
}

// The entities of the pair: a topic with three subscriptions and two queues; entities with sessions
// have odd numbers.
const (
	pairTopic    fsm.EntityID = 10
	pairGrouped  fsm.EntityID = 11
	pairPlain    fsm.EntityID = 12
	pairForwards fsm.EntityID = 14
	pairSessions fsm.EntityID = 21
	pairQueue    fsm.EntityID = 22
)

func (w *replicaPair) do(receiver uint64, c fsm.Command) fsm.Result {
	w.t.Helper()
	h := fsm.Header{}
	if receiver > 0 {
		w.serial[receiver]++
		h = fsm.Header{Incarnation: 7, Receiver: receiver, Serial: w.serial[receiver], Low: w.serial[receiver] - min(w.serial[receiver]-1, uint64(w.r.IntN(3)))}
	}
	w.last = fsm.AppendCommand(nil, h, c)
	return w.apply(w.last)
}

func (w *replicaPair) apply(command []byte) fsm.Result {
	w.t.Helper()
	w.env.Index++
	w.env.Now += fsm.Instant(w.r.IntN(3))
	w.env.Serving += fsm.Instant(w.r.IntN(3))
	x, y := w.a.q.Apply(oneTime(w.env), command), w.b.q.Apply(oneTime(w.env), command)
	if d := cmp.Diff(w.a.show(x), w.b.show(y)); d != "" || x.Session != y.Session || x.Serial != y.Serial {
		_, c, _ := fsm.DecodeCommand(command)
		w.t.Fatalf("entry %d, %T %+v: %s", w.env.Index, c, c, d)
	}
	return x
}

func (w *replicaPair) put(id fsm.EntityID) {
	w.version++
	s := fsm.DefaultSettings()
	s.LockDuration, s.MaxDeliveryCount, s.DefaultTimeToLive = 5000, 3, 9000
	c := fsm.PutEntity{Entity: id, Version: w.version}
	switch {
	case id == pairTopic:
		c.Kind = fsm.TopicEntity
		s.RequiresDuplicateDetection, s.DuplicateWindow = true, 20_000
	case id < 20:
		c.Kind, c.Topic = fsm.SubscriptionEntity, pairTopic
		s.DeadLetterOnFilterErrors = w.r.IntN(2) == 0
	}
	s.RequiresSession = id%2 == 1
	s.DeadLetterOnExpiry = w.r.IntN(2) == 0
	if w.r.IntN(3) == 0 {
		s.RetryDelay, s.RetryDelayMax = 500, 2000
	}
	if w.r.IntN(4) == 0 {
		s.DeadLetterTimeToLive = 4000
	}
	if id == pairForwards && w.r.IntN(4) > 0 {
		s.ForwardTo = "q"
	}
	if c.Kind != fsm.TopicEntity && w.r.IntN(6) == 0 {
		s.ForwardDeadLettersTo = "d"
	}
	c.Settings = s
	w.do(0, c)
}

func (w *replicaPair) entity() fsm.EntityID {
	return []fsm.EntityID{pairTopic, pairGrouped, pairGrouped, pairPlain, pairForwards, pairSessions, pairSessions, pairQueue}[w.r.IntN(8)]
}

func (w *replicaPair) address() fsm.Address {
	return fsm.Address{Entity: w.entity(), Sub: []fsm.SubQueue{0, 0, 0, 0, 1, 2}[w.r.IntN(6)]}
}

func (w *replicaPair) message() fsm.Message {
	m := fsm.Message{ID: fmt.Sprint(w.r.IntN(40)), Payload: fmt.Appendf(nil, "%d", w.env.Index), TimeToLive: fsm.Millis(w.r.IntN(4)) * 1500}
	if w.r.IntN(8) > 0 {
		m.Session, m.HasSession = fmt.Sprint(w.r.IntN(5)), true
	}
	properties := []fsm.Property{{Name: filter.Property{Name: "color"}, Value: filter.Text([]string{"red", "blue"}[w.r.IntN(2)])}}
	if m.HasSession {
		properties = append(properties, fsm.Property{Name: filter.Property{Name: filter.SessionID, Scope: filter.System}, Value: filter.Text(m.Session)})
	}
	m.Properties = fsm.AppendProperties(nil, properties)
	return m
}

func (w *replicaPair) send() {
	c := fsm.SendMessages{Entity: []fsm.EntityID{pairTopic, pairTopic, pairSessions, pairQueue}[w.r.IntN(4)]}
	for range 1 + w.r.IntN(3) {
		m := w.message()
		if w.r.IntN(4) == 0 {
			m.EnqueueAt = w.env.Now + fsm.Instant(w.r.IntN(3000))
		}
		c.Messages = append(c.Messages, m)
	}
	w.do(1, c)
}

func (w *replicaPair) session(id fsm.EntityID) (l fsm.SessionLock) {
	if all := w.sessions[id]; len(all) > 0 {
		l = all[len(all)-1-w.r.IntN(min(4, len(all)))]
	}
	return l
}

func (w *replicaPair) accept() {
	id := []fsm.EntityID{pairGrouped, pairSessions}[w.r.IntN(2)]
	res := w.do(2, fsm.AcceptSession{Entity: id, Named: w.r.IntN(3) == 0, ID: fmt.Sprint(w.r.IntN(6))})
	if res.Session.Epoch != 0 {
		w.sessions[id] = append(w.sessions[id], res.Session)
	}
}

func (w *replicaPair) lock() {
	a := w.address()
	c := fsm.LockMessages{Address: a, Max: 1 + uint32(w.r.IntN(4)), MaxBytes: 1000, Delete: w.r.IntN(5) == 0}
	if a.Entity%2 == 1 && a.Sub == fsm.MainQueue {
		c.Session = w.session(a.Entity)
	}
	for _, d := range w.do(3, c).Deliveries {
		w.locks[a] = append(w.locks[a], d.Lock)
	}
}

func (w *replicaPair) held(a fsm.Address) (l fsm.LockID) {
	if all := w.locks[a]; len(all) > 0 {
		l = all[len(all)-1-w.r.IntN(min(6, len(all)))]
	}
	return l
}

func (w *replicaPair) settlement(a fsm.Address) fsm.Settlement {
	s := fsm.Settlement{Lock: w.held(a), Verb: fsm.Verb(1 + w.r.IntN(5))}
	switch s.Verb {
	case fsm.Abandon:
		s.Until = []fsm.Instant{0, 0, w.env.Now + 900}[w.r.IntN(3)]
	case fsm.DeadLetter:
		s.Reason = "because"
	case fsm.Defer:
		w.numbers[a] = append(w.numbers[a], s.Lock.Sequence)
	case fsm.Complete, fsm.Release:
	}
	if w.r.IntN(4) == 0 {
		s.Properties = []byte("pairs")
	}
	return s
}

func (w *replicaPair) settle() {
	a := w.address()
	w.do(1, fsm.SettleMessages{Address: a, Settlements: []fsm.Settlement{w.settlement(a), w.settlement(a)}})
}

func (w *replicaPair) fetch() {
	a := w.address()
	c := fsm.FetchDeferred{Address: a, Sequences: []fsm.SequenceNumber{1, 2, 3}, Delete: w.r.IntN(6) == 0}
	c.Sequences = append(c.Sequences, w.numbers[a]...)
	c.Sequences = c.Sequences[max(0, len(c.Sequences)-9):]
	if a.Entity%2 == 1 && a.Sub == fsm.MainQueue {
		c.Session = w.session(a.Entity)
	}
	for _, d := range w.do(1, c).Deliveries {
		w.locks[a] = append(w.locks[a], d.Lock)
	}
}

func (w *replicaPair) fetchReady() {
	a := w.address()
	c := fsm.FetchReady{Address: a, Delete: w.r.IntN(6) == 0}
	for _, d := range w.a.q.Peek(a, 0, 9) {
		c.Seen = append(c.Seen, d.Lock)
	}
	c.Seen = append(c.Seen, fsm.LockID{Sequence: 3})
	for _, d := range w.do(1, c).Deliveries {
		w.locks[a] = append(w.locks[a], d.Lock)
	}
}

func (w *replicaPair) forward() {
	a := fsm.Address{Entity: w.entity(), Sub: []fsm.SubQueue{0, 1, fsm.TransferQueue}[w.r.IntN(3)]}
	_, _, _, ok := w.a.q.Outbox(a)
	if !ok {
		return
	}
	take := fsm.ForwardMessages{Address: a, To: fsm.Destination{Partition: 2, Entity: 5}, Max: 3, MaxBytes: 100}
	res := w.do(0, take)
	if res.Serial == 0 || w.r.IntN(3) == 0 {
		return
	}
	take.Done = res.Serial
	if w.r.IntN(3) == 0 {
		for range res.Deliveries {
			take.Codes = append(take.Codes, []fsm.Code{fsm.OK, fsm.QuotaExceeded}[w.r.IntN(2)])
		}
	}
	w.do(0, take)
}

func (w *replicaPair) arrive() {
	m := fsm.Transferred{Message: w.message(), Hops: 1 + uint8(w.r.IntN(4))}
	if w.r.IntN(2) == 0 {
		m.Patches = fsm.AppendPatches(nil, []fsm.Patch{{Enqueued: 99}})
	}
	w.do(0, fsm.TransferMessages{
		Entity: []fsm.EntityID{pairTopic, pairSessions, pairQueue}[w.r.IntN(3)], Serial: 1 + w.env.Index/2,
		Source: fsm.Outbox{Partition: 3, Address: fsm.Address{Entity: 1 + fsm.EntityID(w.r.IntN(3))}}, Messages: []fsm.Transferred{m, m},
	})
}

func (w *replicaPair) transact() {
	a := w.address()
	m := w.message()
	c := fsm.Transact{
		Settles: []fsm.SettleMessages{{Address: a, Settlements: []fsm.Settlement{w.settlement(a)}}},
		Sends:   []fsm.SendMessages{{Entity: pairTopic, Messages: []fsm.Message{m}}},
	}
	if w.r.IntN(2) == 0 {
		c.Transfers = []fsm.TransferOut{{Via: a.Entity, Name: "far", To: fsm.Destination{Partition: 2, Entity: 5}, Messages: []fsm.Message{m}}}
	}
	w.do(1, c)
}

func (w *replicaPair) rule() {
	id := []fsm.EntityID{pairGrouped, pairPlain, pairForwards}[w.r.IntN(3)]
	r := fsm.Rule{Name: fmt.Sprint(w.r.IntN(4)), Filter: []fsm.RuleFilter{
		{Kind: fsm.TrueFilter}, sqlFilter("color = 'red'"), sqlFilter("color + 1 > 3"), {Kind: fsm.CorrelationFilter, Conditions: []filter.Condition{
			{Property: filter.Property{Name: "color"}, Value: filter.Text("blue")},
		}},
	}[w.r.IntN(4)]}
	r.Action.Text = []string{"", "", "SET sys.SessionId = 'x'", "SET n = newid()", "REMOVE sys.SessionId", "SET sys.To = 5"}[w.r.IntN(6)]
	if w.r.IntN(4) == 0 {
		w.do(1, fsm.DropRule{Subscription: id, Name: r.Name})
		return
	}
	w.do(1, fsm.PutRule{Subscription: id, Rule: r, Replace: w.r.IntN(2) == 0})
}

func (w *replicaPair) keep() {
	id := []fsm.EntityID{pairGrouped, pairSessions}[w.r.IntN(2)]
	w.do(1, fsm.SetSessionState{Entity: id, Lock: w.session(id), State: []byte("state"), Clear: w.r.IntN(3) == 0})
}

func (w *replicaPair) rare() {
	id := w.entity()
	switch a := w.address(); w.r.IntN(9) {
	case 0:
		w.do(1, fsm.PurgeMessages{Address: a, Max: 3})
	case 1, 2:
		w.do(1, fsm.RedriveMessages{Entity: id, Sequences: []fsm.SequenceNumber{w.held(fsm.Address{Entity: id}).Sequence, w.held(fsm.Address{Entity: id}).Sequence}})
	case 3:
		w.do(1, fsm.CancelScheduled{Entity: id, Sequences: []fsm.SequenceNumber{w.held(a).Sequence + 1}})
	case 4:
		w.do(0, fsm.CloseReceiver{Incarnation: 7, Receiver: 3})
		w.serial[3] = 0
	case 5, 6:
		w.put(id)
	case 7:
		w.do(1, fsm.RenewLocks{Address: a, Locks: []fsm.LockID{w.held(a)}})
	case 8:
		if id != pairTopic && w.r.IntN(4) == 0 {
			w.do(0, fsm.DropEntity{Entity: id})
			delete(w.sessions, id)
			w.put(id)
		}
	}
}

func (w *replicaPair) release() {
	id := []fsm.EntityID{pairGrouped, pairSessions}[w.r.IntN(2)]
	if w.r.IntN(2) == 0 {
		w.do(1, fsm.RenewSession{Entity: id, Lock: w.session(id)})
		return
	}
	w.do(1, fsm.ReleaseSession{Entity: id, Lock: w.session(id)})
}

func (w *replicaPair) pass() {
	w.env.Now += fsm.Instant([]int{1, 300, 1000, 5000}[w.r.IntN(4)])
	w.env.Serving += fsm.Instant([]int{1, 300, 1000, 5000}[w.r.IntN(4)])
	w.do(0, fsm.Pulse{})
}

// TestReplicasAgreeAfterRestore: restored replicas behave like others, with topics, sessions, times
// to live, forwarding and transactions together; and when everything is dropped no body is stored.
func TestReplicasAgreeAfterRestore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &replicaPair{
				t: t, r: rand.New(rand.NewPCG(seed, 11)), a: newReplica(t), b: newReplica(t), env: fsm.Env{Now: 1_000_000, Serving: 1_000_000},
				serial: map[uint64]uint64{}, locks: map[fsm.Address][]fsm.LockID{},
				sessions: map[fsm.EntityID][]fsm.SessionLock{}, numbers: map[fsm.Address][]fsm.SequenceNumber{},
			}
			all := []fsm.EntityID{pairTopic, pairGrouped, pairPlain, pairForwards, pairSessions, pairQueue}
			for _, id := range all {
				w.put(id)
			}
			steps := []func(){
				w.send, w.send, w.send, w.send, w.accept, w.accept, w.lock, w.lock, w.lock, w.settle, w.settle, w.fetch, w.fetchReady, w.forward, w.forward,
				w.arrive, w.transact, w.rule, w.keep, w.rare, w.release, w.pass, w.pass,
				func() { w.apply(w.last) }, func() { w.b = w.b.restored() },
			}
			for range 1500 {
				steps[w.r.IntN(len(steps))]()
				if x, y := w.a.q.Digest(), w.b.q.Digest(); x != y {
					_, c, _ := fsm.DecodeCommand(w.last)
					t.Fatalf("entry %d, %T %+v: digests differ", w.env.Index, c, c)
				}
				checkStored(t, w.a.q)
				for _, id := range all {
					x, _ := w.a.q.Counts(id)
					y, _ := w.b.q.Counts(id)
					if x != y || w.a.q.AvailableSessions(id) != w.b.q.AvailableSessions(id) {
						t.Fatalf("entry %d, entity %d: counts %+v and %+v", w.env.Index, id, x, y)
					}
				}
			}
			for _, id := range all {
				w.do(0, fsm.DropEntity{Entity: id})
			}
			for range 100 {
				w.do(0, fsm.Pulse{})
			}
			if n := len(w.a.bodies.bodies); n != 0 {
				t.Errorf("%d bodies are still held", n)
			}
		})
	}
}
