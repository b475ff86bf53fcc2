package fsm_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
)

// mail is two partitions that forward to each other through a network that loses answers
// and delivers old commands late, and an account of every message. Entities up to 10 are
// in partition 1, others in partition 2; an entity is called by its number. Some are queues that
// forward to any others. Topic 4 has subscriptions 5 and 6; 5 may forward to queue 15, and
// 6 to topic 16, which has subscription 17.
type mail struct {
	t         *rapid.T
	machines  map[fsm.PartitionID]*between
	version   uint64
	sent      []string        // what is known of messages: payload, and which way a copy took
	done      map[string]bool // completed by a receiver
	dropped   map[string]bool // in an entity when it was dropped
	undecided map[string]bool // on its way to one then: nobody can tell any more whether it arrived
	gone      map[fsm.EntityID]bool
	// What the runner knows: the newest batch it heard of, and how it fared.
	batch map[fsm.Outbox]fsm.Result
	ended map[fsm.Outbox]verdict
	after map[fsm.Outbox]fsm.SequenceNumber // dead letters up to there were refused, since the end was last reached
	late  []fsm.TransferMessages            // what may be delivered once more
	epoch uint64                            // the last one begun
	// copies of the partitions, which differ in age, and the entities that were gone then.
	copies    map[fsm.PartitionID]*replica
	goneThere map[fsm.PartitionID]map[fsm.EntityID]bool
	// An image that must stand still, and what it was when it was taken.
	frozen fsm.Image
	bytes  []byte
}

// verdict is how a batch fared.
type verdict struct {
	serial uint64
	codes  []fsm.Code
}

var (
	mailQueues   = []fsm.EntityID{1, 2, 3, 11, 12, 13}
	mailEntities = append(slices.Clone(mailQueues), 4, 5, 6, 15, 16, 17)
	mailTopics   = map[fsm.EntityID][]fsm.EntityID{4: {5, 6}, 16: {17}}
	mailRoutes   = map[fsm.EntityID]string{5: "15", 6: "16"}
	mailWays     = map[fsm.EntityID]string{5: " by 5", 15: " by 5", 6: " by 6", 17: " by 6"}
)

// home is the partition of an entity, be it there or not.
func home(id fsm.EntityID) fsm.PartitionID {
	if id > 10 {
		return 2
	}
	return 1
}

func (m *mail) at(id fsm.EntityID) *between { return m.machines[home(id)] }

// some draws an entity, mostly one that is there.
func (m *mail) some() fsm.EntityID { return rapid.SampledFrom(mailEntities).Draw(m.t, "entity") }

func (m *mail) put(*rapid.T) { m.settle(m.some(), true) }

// settle sets the settings of an entity, with or without forwarding.
func (m *mail) settle(id fsm.EntityID, forwards bool) {
	if m.gone[id] {
		return
	}
	m.version++
	s := fsm.EntitySettings{
		LockDuration: 5000, MaxDeliveryCount: 2, MaxMessageBytes: rapid.SampledFrom([]uint32{3, 100, 100}).Draw(m.t, "bytes"),
		Status:             rapid.SampledFrom([]fsm.EntityStatus{fsm.Active, fsm.Active, fsm.SendDisabled}).Draw(m.t, "status"),
		DeadLetterOnExpiry: true,
	}
	name := func(label string) string {
		to := rapid.SampledFrom(append([]fsm.EntityID{0, 99}, mailQueues...)).Draw(m.t, label)
		if to == 0 {
			return ""
		}
		return strconv.Itoa(int(to))
	}
	c := fsm.PutEntity{Entity: id, Version: m.version}
	switch route := mailRoutes[id]; {
	case !slices.Contains(mailQueues, id):
		s.ForwardTo = rapid.SampledFrom([]string{"", route, route}).Draw(m.t, "to")
	case forwards:
		s.ForwardTo, s.ForwardDeadLettersTo = name("to"), name("dead to")
	}
	for topic, list := range mailTopics {
		if topic == id {
			c.Kind = fsm.TopicEntity
		} else if slices.Contains(list, id) {
			c.Kind, c.Topic = fsm.SubscriptionEntity, topic
		}
	}
	c.Settings = s
	m.at(id).must(c)
}

// drop deletes an entity. Messages in it are excused from now on.
func (m *mail) drop(*rapid.T) {
	id := m.some()
	if rapid.IntRange(0, 4).Draw(m.t, "really") != 0 || m.gone[id] {
		return
	}
	for _, id := range append(mailTopics[id], id) {
		m.each(id, func(_ fsm.SubQueue, payload string, _ *fsm.Delivery) { m.dropped[payload] = true })
		m.gone[id] = true
	}
	for _, from := range mailEntities {
		m.each(from, func(sub fsm.SubQueue, payload string, d *fsm.Delivery) {
			if _, to, _, _ := m.at(from).q.Outbox(fsm.Address{Entity: from, Sub: sub}); d.State == fsm.Forwarding && to.Entity == id {
				m.undecided[payload] = true
			}
		})
	}
	m.at(id).must(fsm.DropEntity{Entity: id})
}

func (m *mail) send(*rapid.T) {
	id := m.some()
	c := fsm.SendMessages{Entity: id}
	var sent []string
	for range rapid.IntRange(1, 4).Draw(m.t, "n") {
		payload := fmt.Sprint(len(m.sent) + len(sent))
		if rapid.Bool().Draw(m.t, "long") {
			payload += "...."
		}
		life := rapid.SampledFrom([]fsm.Millis{0, 0, 3000}).Draw(m.t, "life")
		c.Messages = append(c.Messages, fsm.Message{Payload: []byte(payload), TimeToLive: life})
		if _, topic := mailTopics[id]; !topic {
			sent = append(sent, payload+mailWays[id])
		}
		for _, to := range mailTopics[id] {
			if !m.gone[to] {
				sent = append(sent, payload+mailWays[to])
			}
		}
	}
	if m.at(id).do(c).Code == fsm.OK {
		m.sent = append(m.sent, sent...)
	}
}

// receive locks messages of any sub-queue and completes, returns or dead-letters them.
func (m *mail) receive(*rapid.T) {
	id := m.some()
	at := fsm.Address{Entity: id, Sub: fsm.SubQueue(rapid.IntRange(0, 2).Draw(m.t, "sub"))}
	b := m.at(id)
	res := b.do(fsm.LockMessages{Address: at, Max: 3, MaxBytes: 100})
	c := fsm.SettleMessages{Address: at}
	for _, d := range res.Deliveries {
		verb := rapid.SampledFrom([]fsm.Verb{fsm.Complete, fsm.Abandon, fsm.Release, fsm.DeadLetter}).Draw(m.t, "verb")
		if verb == fsm.DeadLetter && at.Sub != fsm.MainQueue {
			verb = fsm.Complete
		}
		c.Settlements = append(c.Settlements, fsm.Settlement{Lock: d.Lock, Verb: verb, Properties: []byte("p")})
		if payload := string(b.bodies.Read(d.Body)) + mailWays[id]; verb == fsm.Complete {
			if m.done[payload] && !m.undecided[payload] {
				m.t.Fatalf("%s is completed twice", payload)
			}
			m.done[payload] = true
		}
	}
	if len(c.Settlements) > 0 {
		b.must(c)
	}
}

// ask is the first half of a step of the forwarder: it reports the outcome of the last batch and
// asks for the next one. The answer may be lost, and the report may be outdated.
func (m *mail) ask(*rapid.T) {
	id := m.some()
	m.turn(fsm.Address{Entity: id, Sub: fsm.SubQueue(rapid.IntRange(0, 1).Draw(m.t, "sub"))},
		rapid.IntRange(0, 3).Draw(m.t, "lost") == 0)
}

func (m *mail) turn(at fsm.Address, lost bool) {
	b := m.at(at.Entity)
	box := fsm.Outbox{Partition: home(at.Entity), Address: at}
	_, _, wants, ok := b.q.Outbox(at)
	if !ok {
		return
	}
	c := fsm.ForwardMessages{Address: at, Max: 3, MaxBytes: 20, Done: m.ended[box].serial, Codes: m.ended[box].codes, After: m.after[box]}
	if to, err := strconv.Atoi(wants); err == nil {
		c.To = fsm.Destination{Partition: home(fsm.EntityID(to)), Entity: fsm.EntityID(to)}
	}
	res := b.must(c)
	if lost {
		return
	}
	m.batch[box] = res
	if m.after[box] = 0; at.Sub == fsm.DeadLetterQueue && res.Serial != 0 {
		m.after[box] = res.Deliveries[len(res.Deliveries)-1].Lock.Sequence
	}
}

// carry is the second half: it sends a batch to its destination. It may be late, and the answer may
// be lost.
func (m *mail) carry(*rapid.T) {
	boxes := make([]fsm.Outbox, 0, len(m.batch))
	for box := range m.batch {
		boxes = append(boxes, box)
	}
	if len(boxes) == 0 {
		return
	}
	slices.SortFunc(boxes, func(a, b fsm.Outbox) int {
		return int(a.Address.Entity)*2 + int(a.Address.Sub) - int(b.Address.Entity)*2 - int(b.Address.Sub)
	})
	m.deliver(rapid.SampledFrom(boxes).Draw(m.t, "box"), rapid.IntRange(0, 3).Draw(m.t, "answer lost") == 0)
}

func (m *mail) deliver(box fsm.Outbox, lost bool) {
	res := m.batch[box]
	from := m.at(box.Address.Entity)
	// A batch that has ended cannot be sent for the first time: its bodies are deleted.
	if out, _, _, ok := from.q.Outbox(box.Address); !ok || !out || res.Serial <= m.ended[box].serial {
		return
	}
	c := fsm.TransferMessages{Entity: res.To.Entity, Source: box, Epoch: res.Epoch, Serial: res.Serial}
	for i := range res.Deliveries {
		d := &res.Deliveries[i]
		var patches []fsm.Patch
		if d.Patch != (fsm.Ref{}) {
			patches, _ = fsm.DecodePatches(from.bodies.Read(d.Patch))
		}
		c.Messages = append(c.Messages, fsm.Transferred{
			Message: fsm.Message{Payload: slices.Clone(from.bodies.Read(d.Body))},
			Patches: fsm.AppendPatches(nil, append(patches, fsm.Patch{Enqueued: d.Lock.Sequence})), Hops: d.Hops + 1, Number: d.Lock.Sequence,
		})
	}
	m.late = append(m.late, c)
	answer := m.machines[res.To.Partition].do(c)
	switch {
	case lost:
	case answer.Code == fsm.Stale:
		m.answerRefusal(&c)
	case answer.Code != fsm.OK:
		codes := make([]fsm.Code, len(c.Messages))
		for i := range codes {
			codes[i] = answer.Code
		}
		m.ended[box] = verdict{serial: c.Serial, codes: codes}
	default:
		m.ended[box] = verdict{serial: c.Serial, codes: answer.Codes}
	}
}

// repeat delivers an old command once more; nobody hears the answer.
func (m *mail) repeat(*rapid.T) {
	if n := len(m.late); n > 0 {
		c := m.late[n-1-rapid.IntRange(0, min(10, n-1)).Draw(m.t, "age")]
		m.machines[home(c.Entity)].do(c)
	}
}

// forget is a new runner: it knows nothing of what the last one did.
func (m *mail) forget(*rapid.T) {
	m.batch, m.ended, m.after = map[fsm.Outbox]fsm.Result{}, map[fsm.Outbox]verdict{}, map[fsm.Outbox]fsm.SequenceNumber{}
	for id, b := range m.machines {
		for _, at := range b.q.Outboxes() {
			if home(at.Entity) != id {
				m.t.Fatalf("partition %d has an outbox at %v", id, at)
			}
		}
	}
}

func (m *mail) restore(*rapid.T) {
	b := m.machines[fsm.PartitionID(rapid.IntRange(1, 2).Draw(m.t, "partition"))]
	before := b.q.Digest()
	b.replica = b.restored()
	if b.q.Digest() != before {
		m.t.Fatal("the restored machine is another")
	}
	// Bodies have other locations now: a forwarder with old references asks again.
	m.batch = map[fsm.Outbox]fsm.Result{}
}

// answerRefusal is what a forwarder does when a batch was refused as Stale: if it is still in flight, it
// gets another epoch. The runner asks for it again.
func (m *mail) answerRefusal(c *fsm.TransferMessages) {
	m.epoch++
	m.at(c.Source.Address.Entity).must(fsm.BeginEpoch{Epoch: m.epoch, Address: c.Source.Address, Serial: c.Serial, Replaces: c.Epoch})
	delete(m.batch, c.Source)
}

// copy makes a copy of a partition.
func (m *mail) copy(*rapid.T) {
	id := fsm.PartitionID(rapid.IntRange(1, 2).Draw(m.t, "partition"))
	m.copies[id], m.goneThere[id] = m.machines[id].restored(), maps.Clone(m.gone)
}

// recover restores one partition or both from their copies, in a new epoch. Of what was sent before, the
// copies may hold a message twice or not at all. What they hold, and what is sent from now on,
// must be in one place again.
func (m *mail) recover(*rapid.T) {
	only := fsm.PartitionID(rapid.IntRange(0, 2).Draw(m.t, "partition")) // 0: both
	if rapid.IntRange(0, 3).Draw(m.t, "really") != 0 {
		return
	}
	m.epoch++
	restored := false
	for id := fsm.PartitionID(1); id <= 2; id++ {
		if m.copies[id] == nil || only != 0 && only != id {
			continue
		}
		restored = true
		m.machines[id].replica = m.copies[id].restored()
		m.machines[id].must(fsm.BeginEpoch{Epoch: m.epoch})
		for _, x := range mailEntities {
			if home(x) == id {
				m.gone[x] = m.goneThere[id][x]
			}
		}
	}
	if !restored {
		return // what was completed stays completed
	}
	m.late = nil // of a cluster that is no more
	m.forget(nil)
	m.recount()
}

// recount takes stock of what is there, after it was restored.
func (m *mail) recount() {
	places := map[string]int{}
	for _, id := range mailEntities {
		m.each(id, func(_ fsm.SubQueue, payload string, d *fsm.Delivery) {
			places[payload]++
			if d.State == fsm.Forwarding {
				places[payload]++ // a destination that is newer than the source may have had it
			}
		})
	}
	for _, payload := range m.sent {
		m.dropped[payload], m.undecided[payload] = places[payload] == 0, places[payload] > 1
		delete(m.done, payload)
	}
}

func (m *mail) freeze(*rapid.T) {
	m.thaw()
	b := m.machines[fsm.PartitionID(rapid.IntRange(1, 2).Draw(m.t, "partition"))]
	m.bytes, m.frozen = b.image(), b.q.Image()
}

func (m *mail) thaw() {
	if m.frozen == nil {
		return
	}
	var b bytes.Buffer
	if _, err := m.frozen.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), m.bytes) {
		m.t.Fatalf("an image changed after it was taken (%v)", err)
	}
}

func (m *mail) pass(*rapid.T) {
	for _, id := range []fsm.PartitionID{1, 2} {
		b := m.machines[id]
		b.env.Now += fsm.Instant(rapid.SampledFrom([]int{0, 1000, 6000}).Draw(m.t, "ms"))
		b.env.Serving += fsm.Instant(rapid.SampledFrom([]int{0, 1000, 6000}).Draw(m.t, "serving ms"))
		b.must(fsm.Pulse{})
	}
}

// each calls visit for the messages of an entity; for a topic those of its subscriptions.
func (m *mail) each(id fsm.EntityID, visit func(fsm.SubQueue, string, *fsm.Delivery)) {
	b := m.at(id)
	if _, topic := mailTopics[id]; topic {
		return
	}
	for sub := range fsm.TransferDeadLetterQueue + 1 {
		for _, d := range b.q.Peek(fsm.Address{Entity: id, Sub: sub}, 0, 4096) {
			visit(sub, string(b.bodies.Read(d.Body))+mailWays[id], &d)
		}
	}
}

// Check: a message that was sent is in one place, or was completed, or was in an entity
// that was dropped. While it leaves it may have arrived already, and only then.
func (m *mail) Check(*rapid.T) {
	for _, b := range m.machines {
		checkStored(m.t, b.q)
	}
	here, leaving := map[string]int{}, map[string]int{}
	for _, id := range mailEntities {
		out := [3]bool{}
		m.each(id, func(sub fsm.SubQueue, payload string, d *fsm.Delivery) {
			if d.Hops > 4 {
				m.t.Fatalf("%s was forwarded %d times", payload, d.Hops)
			}
			if d.State == fsm.Forwarding {
				leaving[payload]++
				out[sub] = true
			} else {
				here[payload]++
			}
		})
		for sub := range fsm.TransferDeadLetterQueue {
			if away, _, _, _ := m.at(id).q.Outbox(fsm.Address{Entity: id, Sub: sub}); away != out[sub] {
				m.t.Fatalf("%d/%d: batch out %v, messages leaving %v", id, sub, away, out[sub])
			}
		}
	}
	for payload, n := range here {
		if (n > 1 || m.done[payload]) && !m.undecided[payload] {
			m.t.Fatalf("%s is in %d places, completed %v", payload, n, m.done[payload])
		}
	}
	for _, payload := range m.sent {
		excused := m.done[payload] || m.dropped[payload] || m.gone[17] && strings.HasSuffix(payload, mailWays[17])
		if here[payload]+leaving[payload] == 0 && !excused {
			m.t.Fatalf("%s is lost", payload)
		}
	}
}

// drain lets the runner finish without losses: whatever leaves arrives or is put aside, except dead letters, which are tried
// once more.
func (m *mail) drain() {
	m.forget(nil)
	tried := map[fsm.Outbox]bool{}
	for range 10_000 {
		busy := false
		for _, id := range []fsm.PartitionID{1, 2} {
			for _, at := range m.machines[id].q.Outboxes() {
				box := fsm.Outbox{Partition: id, Address: at}
				if tried[box] {
					continue
				}
				busy = true
				m.turn(at, false)
				if m.batch[box].Serial != 0 {
					m.deliver(box, false)
					m.turn(at, false)
				}
				tried[box] = at.Sub == fsm.DeadLetterQueue && m.batch[box].Serial == 0
			}
		}
		if !busy {
			return
		}
	}
	m.t.Fatal("forwarding does not come to an end")
}

// TestForwardingIsExactlyOnce: whatever answers get lost, whatever is repeated or
// comes late, restored, dropped or redirected meanwhile, every message ends in one place. That also
// holds after partitions were restored from copies of different moments, for what the copies hold
// once and for what is sent afterwards
// (docs/requirements.md#c9).
func TestForwardingIsExactlyOnce(t *testing.T) {
	t.Parallel()
	for range 5 { // what goes wrong only when three things meet is rare in one round
		rapid.Check(t, func(rt *rapid.T) { forwarding(t, rt) })
	}
}

func forwarding(t *testing.T, rt *rapid.T) {
	m := &mail{
		t: rt, machines: map[fsm.PartitionID]*between{1: newBetween(t), 2: newBetween(t)},
		done: map[string]bool{}, dropped: map[string]bool{}, undecided: map[string]bool{}, gone: map[fsm.EntityID]bool{},
		batch: map[fsm.Outbox]fsm.Result{}, ended: map[fsm.Outbox]verdict{}, after: map[fsm.Outbox]fsm.SequenceNumber{},
		copies: map[fsm.PartitionID]*replica{}, goneThere: map[fsm.PartitionID]map[fsm.EntityID]bool{},
	}
	for _, b := range m.machines {
		b.env.Serving = b.env.Now
	}
	for _, id := range mailEntities {
		m.settle(id, true)
	}
	actions := map[string]func(*rapid.T){
		"put": m.put, "drop": m.drop, "send": m.send, "send more": m.send, "receive": m.receive,
		"ask": m.ask, "ask more": m.ask, "ask again": m.ask, "carry": m.carry, "carry more": m.carry, "carry again": m.carry,
		"repeat": m.repeat, "forget": m.forget, "restore": m.restore, "freeze": m.freeze, "pass": m.pass,
		"copy": m.copy, "recover": m.recover, "": m.Check,
	}
	for name, action := range actions {
		actions[name] = func(t *rapid.T) { m.t = t; action(t) }
	}
	rt.Repeat(actions)
	m.t = rt
	m.drain()
	m.Check(nil)
	m.thaw()
	for _, id := range mailEntities {
		m.each(id, func(_ fsm.SubQueue, payload string, d *fsm.Delivery) {
			if d.State == fsm.Forwarding {
				rt.Fatalf("%s is under way forever", payload)
			}
		})
	}
	for _, b := range m.machines {
		b.must(fsm.Pulse{})
		refs := 0
		b.q.Image().Refs(func(fsm.Owner, fsm.Ref) { refs++ })
		if refs != len(b.bodies.bodies) {
			rt.Fatalf("%d bodies are referred to, %d are held", refs, len(b.bodies.bodies))
		}
	}
}
