package fsm_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// subscribe makes topic 1 with subscriptions from 2 on.
func (b *between) subscribe(rules ...*fsm.Rule) {
	b.t.Helper()
	s := fsm.DefaultSettings()
	b.must(fsm.PutEntity{Entity: 1, Version: 1, Settings: s, Kind: fsm.TopicEntity})
	for i, r := range rules {
		b.must(fsm.PutEntity{
			Entity: fsm.EntityID(i + 2), Version: 1, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 1, Rule: r,
		})
	}
}

// redirect changes where a subscription forwards to.
func (b *between) redirect(id fsm.EntityID, version uint64, change func(*fsm.EntitySettings)) {
	b.t.Helper()
	s := fsm.DefaultSettings()
	change(&s)
	b.must(fsm.PutEntity{Entity: id, Version: version, Settings: s, Kind: fsm.SubscriptionEntity, Topic: 1})
}

func (b *between) patches(d fsm.Delivery) []fsm.Patch {
	b.t.Helper()
	if d.Patch == (fsm.Ref{}) {
		return nil
	}
	list, err := fsm.DecodePatches(b.bodies.Read(d.Patch))
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// TestTransferToTopic: what is forwarded to a topic is published there, once: every copy
// has what the message brought along, and then what the rule made of it.
func TestTransferToTopic(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.subscribe(nil, &fsm.Rule{Name: "mark", Action: fsm.SQLText{Text: "SET mark = 'yes'"}}, &fsm.Rule{Name: "none", Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}})
	brought := []fsm.Patch{{Properties: []byte("p")}, {Enqueued: 70, Source: "orders", Properties: []byte{}}}
	m := carried("body")
	m.Hops, m.Patches = 3, fsm.AppendPatches(nil, brought)
	c := transferOf(1, m, carried("other"))
	for range 2 {
		if diff := cmp.Diff([]fsm.Code{fsm.OK, fsm.OK}, b.must(c).Codes); diff != "" {
			t.Fatal(diff)
		}
		for id, want := range map[fsm.EntityID]int{2: 2, 3: 2, 4: 0} {
			list := b.q.Peek(fsm.Address{Entity: id}, 0, 9)
			if len(list) != want {
				t.Fatalf("%d copies in %d", len(list), id)
			}
			if want == 0 {
				continue
			}
			d, patches := list[0], brought
			if id == 3 {
				patches = append(patches[:2:2], fsm.Patch{Properties: []byte{}, Changes: []fsm.Change{
					{Property: filter.Property{Name: "mark"}, Value: filter.Text("yes")},
					{Property: filter.Property{Name: "RuleName"}, Value: filter.Text("mark")},
				}})
			}
			if d.Topic != 1 || d.Hops != 3 || string(b.bodies.Read(d.Body)) != "body" || list[1].Hops != 1 {
				t.Errorf("copy in %d: %+v", id, d)
			}
			if diff := cmp.Diff(patches, b.patches(d), sameValue); diff != "" {
				t.Errorf("patches in %d (-want +got):\n%s", id, diff)
			}
		}
		b.replica = b.restored()
	}
	if res := b.do(fsm.TransferMessages{Entity: 2, Source: c.Source, Serial: 1, Messages: c.Messages}); res.Code != fsm.NotAllowed {
		t.Errorf("to a subscription: %v", res.Code)
	}
}

// TestForwardFromSubscription: copies are forwarded with the body that they share; those that could
// not be delivered still share it in the dead-letter queue.
func TestForwardFromSubscription(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.subscribe(nil, nil)
	b.redirect(2, 2, onward)
	b.redirect(3, 2, func(s *fsm.EntitySettings) { s.ForwardDeadLettersTo = "elsewhere" })
	b.send(1, 3, fsm.Message{Payload: []byte("body")})
	batch := b.must(take(2, 2))
	if n := len(batch.Deliveries); n != 2 || batch.Deliveries[1].Topic != 2 || string(b.bodies.Read(batch.Deliveries[1].Body)) != "body" {
		t.Fatalf("batch of %d: %+v", n, batch)
	}
	done := take(2, 2)
	done.Done, done.Codes = 1, []fsm.Code{fsm.OK, fsm.QuotaExceeded}
	if batch = b.must(done); len(batch.Deliveries) != 1 || len(b.bodies.bodies) != 4 {
		t.Fatalf("batch %+v, %d bodies", batch, len(b.bodies.bodies))
	}
	b.replica = b.restored()
	// The other subscription dead-letters and forwards its copies.
	locked := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 3}, Max: 9, MaxBytes: 99}).Deliveries
	c := fsm.SettleMessages{Address: fsm.Address{Entity: 3}}
	for _, d := range locked {
		c.Settlements = append(c.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.DeadLetter})
	}
	b.must(c)
	dead := fsm.ForwardMessages{Address: fsm.Address{Entity: 3, Sub: fsm.DeadLetterQueue}, To: elsewhere, Max: 9, MaxBytes: 99}
	if res := b.must(dead); len(res.Deliveries) != 3 || res.Deliveries[2].Topic != 3 {
		t.Fatalf("dead letters %+v", res)
	}
	dead.Done = 1
	b.must(dead)
	if c := b.counts(3); c != (fsm.Counts{LastUse: c.LastUse}) || len(b.bodies.bodies) != 3 { // two messages, one reason
		t.Errorf("%+v, %d bodies", c, len(b.bodies.bodies))
	}
	if c := b.counts(2); c.Transfer != 1 || c.DeadLetter != 1 {
		t.Errorf("%+v", c)
	}
	// Nothing of it stays, whichever is dropped first.
	for _, first := range []fsm.EntityID{1, 2} {
		other := b.restored()
		for _, id := range []fsm.EntityID{first, 3 - first} {
			other.q.Apply(oneTime(b.env), fsm.AppendCommand(nil, fsm.Header{}, fsm.DropEntity{Entity: id}))
		}
		if n := len(other.bodies.bodies); n != 0 {
			t.Errorf("%d dropped first: %d bodies are left", first, n)
		}
	}
}
