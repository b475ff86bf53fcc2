package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
)

// bank is two partitions, each with a second replica that is restored now and then, and
// an account of every message. Entities up to 10 are in partition 1. Messages move by
// transactions only, which complete some and send others, here and to the other partition; an
// unreliable forwarder transfers those.
type bank struct {
	t       *rapid.T
	sides   map[fsm.PartitionID]*side
	version uint64
	sent    int
	locks   []bankLock
	past    []asked
	// What is known of messages: of copies by where they end up.
	due  map[bankNote]fsm.EntityID // there or on their way there, by what they go through; 0: straight
	done map[bankNote]bool         // completed
	// What the forwarder knows.
	ended map[fsm.Outbox]verdict
	late  []fsm.TransferMessages
}

// side is a partition.
type side struct {
	a, b   *replica
	env    fsm.Env
	serial uint64
}

// bankNote is one copy of a message: its number and the queue or subscription it ends up in.
type bankNote struct {
	token string
	at    fsm.EntityID
}

// bankLock is a lock that somebody got.
type bankLock struct {
	at    fsm.Address
	lock  fsm.LockID
	token string
}

// asked is a command and its answer, which may have been lost.
type asked struct {
	to      fsm.PartitionID
	command []byte
	res     fsm.Result
}

// The entities of both partitions. 1 is small, 2 detects duplicates, 3 and 13 have sessions,
// 4 is a topic of 5 and 6.
var (
	bankEntities = []fsm.EntityID{1, 2, 3, 4, 5, 6, 11, 13}
	bankLeaves   = []fsm.EntityID{1, 2, 3, 5, 6, 11, 13}
	bankTargets  = []fsm.EntityID{1, 1, 2, 3, 4, 11, 11, 13}
)

func leavesOf(id fsm.EntityID) []fsm.EntityID {
	if id == 4 {
		return []fsm.EntityID{5, 6}
	}
	return []fsm.EntityID{id}
}

func hasSessions(id fsm.EntityID) bool { return id == 3 || id == 13 }

// do performs a command on both replicas, which must agree.
func (b *bank) do(to fsm.PartitionID, h fsm.Header, c fsm.Command) fsm.Result {
	return b.apply(to, fsm.AppendCommand(nil, h, c))
}

func (b *bank) apply(to fsm.PartitionID, command []byte) fsm.Result {
	s := b.sides[to]
	s.env.Index++
	res := s.a.q.Apply(oneTime(s.env), command)
	if other := s.b.q.Apply(oneTime(s.env), command); cmp.Diff(s.a.show(res), s.b.show(other)) != "" || !cmp.Equal(res.Sequences, other.Sequences) {
		b.t.Fatalf("one replica answers %+v, the other %+v", res, other)
	}
	return res
}

func (b *bank) put(id fsm.EntityID) {
	b.version++
	c := fsm.PutEntity{Entity: id, Version: b.version, Settings: fsm.DefaultSettings()}
	c.Settings.LockDuration, c.Settings.MaxDeliveryCount = 5000, 3
	c.Settings.Status = rapid.SampledFrom([]fsm.EntityStatus{fsm.Active, fsm.Active, fsm.Active, fsm.SendDisabled}).Draw(b.t, "status")
	c.Settings.RequiresDuplicateDetection, c.Settings.RequiresSession = id == 2, hasSessions(id)
	switch id {
	case 1:
		c.Settings.MaxBytes = 1 << 20
	case 4:
		c.Kind = fsm.TopicEntity
	case 5, 6:
		c.Kind, c.Topic = fsm.SubscriptionEntity, 4
	}
	if res := b.do(home(id), fsm.Header{}, c); res.Code != fsm.OK {
		b.t.Fatalf("put %d: %v", id, res.Code)
	}
}

func (b *bank) settings(*rapid.T) { b.put(rapid.SampledFrom(bankEntities).Draw(b.t, "entity")) }

// receive locks messages somewhere.
func (b *bank) receive(*rapid.T) {
	id := rapid.SampledFrom(bankLeaves).Draw(b.t, "entity")
	c := fsm.LockMessages{Address: fsm.Address{Entity: id}, Max: 3, MaxBytes: 1 << 20}
	if !hasSessions(id) && rapid.IntRange(0, 4).Draw(b.t, "dead") == 0 {
		c.Address.Sub = fsm.DeadLetterQueue
	}
	if hasSessions(id) {
		if c.Session = b.do(home(id), fsm.Header{}, fsm.AcceptSession{Entity: id}).Session; c.Session.Epoch == 0 {
			return
		}
	}
	for _, d := range b.do(home(id), fsm.Header{}, c).Deliveries {
		b.locks = append(b.locks, bankLock{c.Address, d.Lock, b.token(home(id), d.Body)})
	}
}

func (b *bank) token(at fsm.PartitionID, body fsm.Ref) string {
	token, _, _ := strings.Cut(string(b.sides[at].a.bodies.Read(body)), ".")
	return token
}

// message draws one to an entity.
func (b *bank) message(to fsm.EntityID) fsm.Message {
	b.sent++
	m := fsm.Message{Payload: fmt.Append(nil, b.sent, "."), HasSession: true, Session: rapid.SampledFrom([]string{"", "s"}).Draw(b.t, "session")}
	if to == 2 {
		m.ID = rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(b.t, "id")
	}
	if to == 1 && rapid.IntRange(0, 2).Draw(b.t, "large") == 0 {
		m.Payload = append(m.Payload, make([]byte, 300<<10)...)
	}
	if hasSessions(to) && rapid.IntRange(0, 15).Draw(b.t, "sessionless") == 0 {
		m.HasSession, m.Session = false, ""
	}
	return m
}

// transact performs a transaction. If its answer is lost, it is repeated.
func (b *bank) transact(*rapid.T) {
	at := fsm.PartitionID(rapid.IntRange(1, 2).Draw(b.t, "partition"))
	c, settled := b.draw(at)
	if fsm.Check(c) != fsm.OK {
		return
	}
	s := b.sides[at]
	s.serial++
	command := fsm.AppendCommand(nil, fsm.Header{Incarnation: 7, Serial: s.serial, Low: 1}, c)
	res := b.apply(at, command)
	b.past = append(b.past, asked{at, command, res})
	if res.Code != fsm.OK {
		return
	}
	for _, l := range settled {
		note := bankNote{l.token, l.at.Entity}
		if b.done[note] || !b.expects(note) {
			b.t.Fatalf("%v is completed twice", note)
		}
		delete(b.due, note)
		b.done[note] = true
	}
	n := 0
	for _, s := range c.Sends {
		for _, m := range s.Messages {
			if n++; res.Sequences[n-1] != 0 {
				b.note(m, s.Entity, 0)
			}
		}
	}
	for _, t := range c.Transfers {
		for _, m := range t.Messages {
			b.note(m, t.To.Entity, t.Via)
		}
	}
}

func (b *bank) expects(note bankNote) bool { _, is := b.due[note]; return is }

func (b *bank) note(m fsm.Message, to, via fsm.EntityID) {
	token, _, _ := strings.Cut(string(m.Payload), ".")
	for _, leaf := range leavesOf(to) {
		b.due[bankNote{token, leaf}] = via
	}
}

// draw makes a transaction of a partition, and says what it completes.
func (b *bank) draw(at fsm.PartitionID) (c fsm.Transact, completed []bankLock) {
	for range rapid.IntRange(0, 3).Draw(b.t, "settlements") {
		if len(b.locks) == 0 {
			break
		}
		l := b.locks[len(b.locks)-1-rapid.IntRange(0, min(6, len(b.locks)-1)).Draw(b.t, "age")]
		if home(l.at.Entity) != at {
			continue
		}
		verb := rapid.SampledFrom([]fsm.Verb{fsm.Complete, fsm.Complete, fsm.Abandon, fsm.DeadLetter}).Draw(b.t, "verb")
		c.Settles = append(c.Settles, fsm.SettleMessages{Address: l.at, Settlements: []fsm.Settlement{{Lock: l.lock, Verb: verb, Properties: []byte("p")}}})
		if verb == fsm.Complete {
			completed = append(completed, l)
		}
	}
	for range rapid.IntRange(0, 3).Draw(b.t, "sends") {
		to := rapid.SampledFrom(bankTargets).Draw(b.t, "to")
		messages := []fsm.Message{b.message(to)}
		if rapid.Bool().Draw(b.t, "two") {
			messages = append(messages, b.message(to))
		}
		if home(to) == at {
			c.Sends = append(c.Sends, fsm.SendMessages{Entity: to, Messages: messages})
			continue
		}
		via := rapid.SampledFrom(bankEntities).Draw(b.t, "via")
		if home(via) == at {
			c.Transfers = append(c.Transfers, fsm.TransferOut{Via: via, To: fsm.Destination{Partition: home(to), Entity: to}, Name: fmt.Sprint(to), Messages: messages})
		}
	}
	return c, completed
}

// retry repeats a command whose answer was lost.
func (b *bank) retry(*rapid.T) {
	if n := len(b.past); n > 0 {
		x := b.past[n-1-rapid.IntRange(0, min(10, n-1)).Draw(b.t, "age")]
		if diff := cmp.Diff(x.res, b.apply(x.to, x.command), cmpopts.EquateEmpty()); diff != "" {
			b.t.Fatalf("asked again it answers otherwise (-first +again):\n%s", diff)
		}
	}
}

// forward is a step of the forwarder, either half of which may remain without an answer.
func (b *bank) forward(*rapid.T) {
	via := rapid.SampledFrom(bankEntities).Draw(b.t, "via")
	b.turn(via, rapid.IntRange(0, 3).Draw(b.t, "lost") == 0, rapid.IntRange(0, 3).Draw(b.t, "answer lost") == 0)
}

func (b *bank) turn(via fsm.EntityID, lost, answerLost bool) (moved bool) {
	box := fsm.Outbox{Partition: home(via), Address: fsm.Address{Entity: via, Sub: fsm.TransferQueue}}
	res := b.do(box.Partition, fsm.Header{}, fsm.ForwardMessages{
		Address: box.Address, Done: b.ended[box].serial, Codes: b.ended[box].codes, To: elsewhere, Max: 3, MaxBytes: 1 << 20,
	})
	if res.Code != fsm.OK || lost || res.Serial == 0 {
		return false
	}
	c := fsm.TransferMessages{Entity: res.To.Entity, Source: box, Serial: res.Serial}
	for i := range res.Deliveries {
		payload := slices.Clone(b.sides[box.Partition].a.bodies.Read(res.Deliveries[i].Body))
		c.Messages = append(c.Messages, fsm.Transferred{Message: fsm.Message{Payload: payload, Session: "s", HasSession: true}})
	}
	b.late = append(b.late, c)
	answer := b.do(res.To.Partition, fsm.Header{}, c)
	if answerLost {
		return false
	}
	codes := answer.Codes
	if answer.Code != fsm.OK {
		codes = slices.Repeat([]fsm.Code{answer.Code}, len(c.Messages))
	}
	b.ended[box] = verdict{serial: c.Serial, codes: codes}
	return true
}

// repeat delivers an old batch once more; nobody hears the answer.
func (b *bank) repeat(*rapid.T) {
	if n := len(b.late); n > 0 {
		c := b.late[n-1-rapid.IntRange(0, min(10, n-1)).Draw(b.t, "age")]
		b.do(home(c.Entity), fsm.Header{}, c)
	}
}

func (b *bank) restore(*rapid.T) {
	s := b.sides[fsm.PartitionID(rapid.IntRange(1, 2).Draw(b.t, "partition"))]
	s.b = s.b.restored()
}

// pass lets locks expire.
func (b *bank) pass(*rapid.T) {
	for id, s := range b.sides {
		s.env.Now += fsm.Instant(rapid.SampledFrom([]int{0, 1000, 6000}).Draw(b.t, "ms"))
		s.env.Serving += fsm.Instant(rapid.SampledFrom([]int{0, 1000, 6000}).Draw(b.t, "serving ms"))
		b.do(id, fsm.Header{}, fsm.Pulse{})
	}
}

// Check compares what is there with what should be.
func (b *bank) Check(*rapid.T) {
	at, lost, transit := map[bankNote]int{}, map[string]int{}, map[string]int{}
	for id, s := range b.sides {
		if s.a.q.Digest() != s.b.q.Digest() {
			b.t.Fatalf("the replicas of partition %d differ", id)
		}
		checkStored(b.t, s.a.q)
		s.a.q.Image().Refs(func(o fsm.Owner, ref fsm.Ref) {
			if o.Sub == fsm.TransferQueue && !o.Patch {
				transit[b.token(id, ref)]++
			}
		})
		for _, e := range bankEntities {
			for sub := fsm.MainQueue; sub <= fsm.TransferDeadLetterQueue && home(e) == id; sub++ {
				for _, d := range s.a.q.Peek(fsm.Address{Entity: e, Sub: sub}, 0, 4096) {
					if token := b.token(id, d.Body); sub == fsm.TransferDeadLetterQueue {
						lost[token]++
					} else {
						at[bankNote{token, e}]++
					}
				}
			}
		}
	}
	for note, n := range at {
		if n > 1 || !b.expects(note) {
			b.t.Fatalf("%v is there %d times, sent %v, completed %v", note, n, b.expects(note), b.done[note])
		}
	}
	known := map[string]fsm.EntityID{}
	for note, via := range b.due {
		known[note.token] = via
		there, away := at[note], lost[note.token]+transit[note.token]
		if there+away == 0 || lost[note.token] > 0 && (there > 0 || away > 1) {
			b.t.Fatalf("%v: there %d, on its way %d, given up %d", note, there, transit[note.token], lost[note.token])
		}
		if there > 0 && away > 0 && !b.out(via) || via == 0 && away > 0 {
			b.t.Fatalf("%v is there and on its way", note)
		}
	}
	for note := range b.done {
		known[note.token] = 0
	}
	for _, list := range []map[string]int{lost, transit} {
		for token, n := range list {
			if _, is := known[token]; !is || n > 1 {
				b.t.Fatalf("message %s, of a transaction that was refused, is on its way %d times", token, n)
			}
		}
	}
}

// out reports whether a transfer queue has a batch in flight.
func (b *bank) out(via fsm.EntityID) bool {
	s := b.sides[home(via)]
	out, _, _, _ := s.a.q.Outbox(fsm.Address{Entity: via, Sub: fsm.TransferQueue})
	return out
}

// drain lets the forwarder finish.
func (b *bank) drain() {
	for range 1000 {
		busy := false
		for _, id := range bankEntities {
			at := fsm.Address{Entity: id, Sub: fsm.TransferQueue}
			if busy = slices.Contains(b.sides[home(id)].a.q.Outboxes(), at); busy {
				b.turn(id, false, false)
				break
			}
		}
		if !busy {
			return
		}
	}
	b.t.Fatal("the transfers do not come to an end")
}

// empty drops everything; no body may be left.
func (b *bank) empty() {
	for _, id := range bankEntities {
		b.do(home(id), fsm.Header{}, fsm.DropEntity{Entity: id})
	}
	for id, s := range b.sides {
		b.do(id, fsm.Header{}, fsm.Pulse{})
		for i, r := range []*replica{s.a, s.b} {
			if n := len(r.bodies.bodies); n > 0 {
				b.t.Fatalf("replica %d of partition %d holds %d bodies", i, id, n)
			}
		}
	}
}

// TestTransactionsAreAtomic: whatever answers get lost, whatever is repeated or
// restored, a transaction is done once, as a whole, or has left nothing.
func TestTransactionsAreAtomic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := &bank{
			t: rt, sides: map[fsm.PartitionID]*side{}, due: map[bankNote]fsm.EntityID{}, done: map[bankNote]bool{},
			ended: map[fsm.Outbox]verdict{},
		}
		for id := fsm.PartitionID(1); id <= 2; id++ {
			b.sides[id] = &side{a: newReplica(t), b: newReplica(t), env: fsm.Env{Now: 1_000_000, Serving: 1_000_000}}
			b.do(id, fsm.Header{}, fsm.RaiseLevel{Level: rapid.Uint32Range(1, 3).Draw(rt, "level")})
		}
		for _, id := range bankEntities {
			b.put(id)
		}
		actions := map[string]func(*rapid.T){
			"settings": b.settings, "receive": b.receive, "receive more": b.receive, "transact": b.transact, "transact more": b.transact,
			"transact again": b.transact, "retry": b.retry, "forward": b.forward, "forward more": b.forward, "repeat": b.repeat,
			"restore": b.restore, "pass": b.pass, "": b.Check,
		}
		for name, action := range actions {
			actions[name] = func(t *rapid.T) { b.t = t; action(t) }
		}
		rt.Repeat(actions)
		b.t = rt
		b.drain()
		b.Check(nil)
		for _, s := range b.sides {
			if len(s.a.q.Outboxes()) > 0 {
				rt.Fatal("something is on its way forever")
			}
		}
		b.empty()
	})
}
