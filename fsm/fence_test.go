package fsm_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

const idleShardTime = fsm.Millis(300_000)

// exampleFence has every field set.
func exampleFence() fsm.Command {
	return fsm.FenceIdle{Entity: 300, Round: 1 << 40, Step: fsm.FenceDelete}
}

// newShard is a state machine with shard 1 of a queue that is deleted when it is idle.
func newShard(t testing.TB, change func(*fsm.EntitySettings)) *between {
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) {
		s.EnablePartitioning, s.AutoDeleteOnIdle = true, idleShardTime
		if change != nil {
			change(s)
		}
	})
	return b
}

// pass lets time pass, with a pulse at its end.
func (b *between) pass(d fsm.Millis) {
	b.t.Helper()
	b.env.Now = b.env.Now.After(d)
	b.env.Serving = b.env.Now
	b.must(fsm.Pulse{})
}

func (b *between) isIdle(id fsm.EntityID) bool {
	idle, _ := b.q.IsIdle(id)
	return idle
}

func (b *between) fence(step fsm.FenceStep, round uint64) fsm.Result {
	return b.do(fsm.FenceIdle{Entity: 1, Round: round, Step: step})
}

// TestIdleShardReportsItself: a shard never deletes itself. When it is idle it tells the leader so, and again every
// minute, and so does a subscription of a partitioned topic.
func TestIdleShardReportsItself(t *testing.T) {
	t.Parallel()
	b := newShard(t, nil)
	settings := fsm.DefaultSettings()
	settings.EnablePartitioning = true
	b.must(fsm.PutEntity{Entity: 2, Version: 1, Settings: settings, Kind: fsm.TopicEntity})
	settings.EnablePartitioning, settings.AutoDeleteOnIdle = false, idleShardTime
	b.must(fsm.PutEntity{Entity: 3, Version: 1, Settings: settings, Kind: fsm.SubscriptionEntity, Topic: 2})
	b.q.Effects()
	reported := func() (ids []fsm.EntityID) {
		for _, e := range b.q.Effects() {
			if e.Kind == fsm.EffectIdleShard {
				ids = append(ids, e.Address.Entity)
			}
		}
		slices.Sort(ids)
		return ids
	}
	b.pass(idleShardTime - 1)
	if got := reported(); got != nil {
		t.Errorf("reported too early: %v", got)
	}
	for range 3 {
		b.pass(60_000)
		if diff := cmp.Diff([]fsm.EntityID{1, 3}, reported()); diff != "" {
			t.Error(diff)
		}
	}
	b.must(fsm.Touch{Entity: 1})
	b.replica = b.restored() // its timers are rebuilt
	b.pass(60_000)
	if diff := cmp.Diff([]fsm.EntityID{3}, reported()); diff != "" || b.isIdle(1) || !b.isIdle(3) {
		t.Errorf("after a use: %s", diff)
	}
	if got := b.q.Tombstones(); got != nil {
		t.Errorf("deleted %v", got)
	}
}

// TestFencedShardAcceptsNothing: a fence refuses everything that uses a shard with ServerBusy, and changes nothing. Receivers
// get no message, and no error. When the fence is lifted, everything works, and receivers that wait are woken.
func TestFencedShardAcceptsNothing(t *testing.T) {
	t.Parallel()
	for _, grouped := range []bool{false, true} {
		b := newShard(t, func(s *fsm.EntitySettings) { s.RequiresSession, s.LockDuration = grouped, 600_000 })
		b.put(9, 1, nil)
		message := fsm.Message{Payload: []byte("m"), Session: "s", HasSession: grouped}
		later := message
		later.EnqueueAt = b.env.Now + 3_600_000
		b.send(1, 3, message)
		b.send(1, 1, later)
		var session fsm.SessionLock
		if grouped {
			session = b.must(fsm.AcceptSession{Entity: 1, Named: true, ID: "s"}).Session
			other := message
			other.Session = "other"
			b.send(1, 1, other)
		}
		lock := b.must(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, Session: session}).Deliveries[0].Lock
		b.pass(idleShardTime)
		round := b.fence(fsm.FenceSet, 0).Serial
		at, settle := fsm.Address{Entity: 1}, fsm.Settlement{Lock: lock, Verb: fsm.Complete}
		uses := []fsm.Command{
			fsm.SendMessages{Entity: 1, Messages: []fsm.Message{message}},
			fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{settle}},
			fsm.RenewLocks{Address: at, Locks: []fsm.LockID{lock}},
			fsm.FetchDeferred{Address: at, Sequences: []fsm.SequenceNumber{1}, Session: session},
			fsm.CancelScheduled{Entity: 1, Sequences: []fsm.SequenceNumber{4}},
			fsm.ReserveNumbers{Entity: 1, Count: 1},
			fsm.PurgeMessages{Address: at, Max: 1},
			fsm.RedriveMessages{Entity: 1, Sequences: []fsm.SequenceNumber{1}},
			fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, States: fsm.SetOf(fsm.Scheduled), Sequences: []fsm.SequenceNumber{4}},
			transferOf(1, fsm.Transferred{Message: message, Hops: 1}),
			fsm.Transact{Settles: []fsm.SettleMessages{{Address: at, Settlements: []fsm.Settlement{settle}}}},
			fsm.Transact{Cancels: []fsm.CancelScheduled{{Entity: 1, Sequences: []fsm.SequenceNumber{4}}}},
			fsm.Transact{Sends: []fsm.SendMessages{{Entity: 9, Messages: []fsm.Message{{}}}, {Entity: 1, Messages: []fsm.Message{message}}}},
			fsm.Transact{Transfers: []fsm.TransferOut{postOf(1, elsewhere, "e", "x")}},
		}
		wait := fsm.Command(fsm.LockMessages{Address: at, Max: 1})
		if !grouped {
			uses = append(uses, fsm.FetchReady{Address: at, Seen: []fsm.LockID{{Sequence: 2}}})
		} else {
			uses = append(
				uses, fsm.AcceptSession{Entity: 1, Named: true, ID: "t"}, fsm.RenewSession{Entity: 1, Lock: session},
				fsm.SetSessionState{Entity: 1, Lock: session, State: []byte("x")}, fsm.Transact{States: []fsm.SetSessionState{{Entity: 1, Lock: session}}},
			)
			wait = fsm.AcceptSession{Entity: 1}
		}
		before := b.q.Digest()
		for _, c := range uses {
			if code := b.do(c).Code; code != fsm.ServerBusy {
				t.Errorf("%T of a fenced shard: %v", c, code)
			}
		}
		if res := b.do(wait); res.Code != fsm.OK || res.Deliveries != nil || res.Session.Epoch != 0 {
			t.Errorf("a receiver got %+v", res)
		}
		if b.q.Digest() != before {
			t.Error("a refused command changed something")
		}
		b.q.Effects()
		if again := b.restored(); again.q.Digest() != before || !slices.Equal(again.q.FencedShards(), []fsm.FencedShard{{Entity: 1, Round: round}}) {
			t.Errorf("restored with the fences %v", again.q.FencedShards())
		}
		b.fence(fsm.FenceLift, round)
		if effects := b.q.Effects(); len(effects) == 0 || effects[0].Address != at {
			t.Errorf("no receiver is woken: %v", effects)
		}
		if res := b.must(wait); len(res.Deliveries) != 1 && res.Session.Epoch == 0 {
			t.Errorf("a receiver got %+v", res)
		}
		b.must(uses[0])
		if got := b.q.FencedShards(); len(got) != 0 {
			t.Errorf("fenced: %v", got)
		}
	}
}

// TestFencedSubscriptionKeepsItsRules: a subscription that is fenced refuses changes of its rules. Its topic goes on.
func TestFencedSubscriptionKeepsItsRules(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	settings := fsm.DefaultSettings()
	settings.EnablePartitioning = true
	b.must(fsm.PutEntity{Entity: 2, Version: 1, Settings: settings, Kind: fsm.TopicEntity})
	settings.EnablePartitioning, settings.AutoDeleteOnIdle = false, idleShardTime
	b.must(fsm.PutEntity{Entity: 1, Version: 1, Settings: settings, Kind: fsm.SubscriptionEntity, Topic: 2})
	b.pass(idleShardTime)
	round := b.fence(fsm.FenceSet, 0).Serial
	for _, c := range []fsm.Command{fsm.PutRule{Subscription: 1, Rule: exampleRule()}, fsm.DropRule{Subscription: 1, Name: fsm.DefaultRuleName}} {
		if code := b.do(c).Code; code != fsm.ServerBusy {
			t.Errorf("%T: %v", c, code)
		}
	}
	b.send(2, 1, fsm.Message{})
	golden(t, "image-queues-fenced", b.image())
	if again := b.restored(); again.q.Digest() != b.q.Digest() {
		t.Error("an image loses something")
	}
	b.must(fsm.FenceIdle{Entity: 1, Round: round, Step: fsm.FenceDelete})
	if got := b.q.Tombstones(); !slices.Equal(got, []fsm.EntityID{1}) || len(b.q.FencedShards()) != 0 {
		t.Errorf("tombstones %v, fences %v", got, b.q.FencedShards())
	}
}

// TestFencesBelongToTheirRound: commands of a round that has ended have no effect, in whatever order they come.
func TestFencesBelongToTheirRound(t *testing.T) {
	t.Parallel()
	b := newShard(t, nil)
	b.put(9, 1, func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = idleShardTime })
	b.pass(idleShardTime - 1)
	check := func(what string, want fsm.Code, step fsm.FenceStep, round uint64) {
		t.Helper()
		if code := b.fence(step, round).Code; code != want {
			t.Errorf("%s: %v", what, code)
		}
	}
	check("before it is idle", fsm.PreconditionFails, fsm.FenceSet, 0)
	b.pass(1)
	first := b.fence(fsm.FenceSet, 0).Serial
	if first == 0 {
		t.Fatal("a round without a number")
	}
	check("two rounds at once", fsm.PreconditionFails, fsm.FenceSet, 0)
	check("another one's lift", fsm.OK, fsm.FenceLift, first+1)
	check("another one's deletion", fsm.PreconditionFails, fsm.FenceDelete, first+1)
	if got := b.q.FencedShards(); !slices.Equal(got, []fsm.FencedShard{{Entity: 1, Round: first}}) {
		t.Errorf("fenced: %v", got)
	}
	check("lift", fsm.OK, fsm.FenceLift, first)
	check("lift again", fsm.OK, fsm.FenceLift, first)
	check("a late deletion", fsm.PreconditionFails, fsm.FenceDelete, first)
	second := b.fence(fsm.FenceSet, 0).Serial
	check("a late deletion in the next round", fsm.PreconditionFails, fsm.FenceDelete, first)
	check("a late lift in the next round", fsm.OK, fsm.FenceLift, first)
	check("a late fence in the next round", fsm.PreconditionFails, fsm.FenceSet, first)
	check("again", fsm.OK, fsm.FenceSet, second)
	b.must(fsm.Touch{Entity: 1}) // a receiver attached
	check("a shard in use", fsm.PreconditionFails, fsm.FenceSet, second)
	check("the deletion of a shard in use", fsm.PreconditionFails, fsm.FenceDelete, second)
	b.pass(idleShardTime)
	check("deletion", fsm.OK, fsm.FenceDelete, second)
	check("deletion again", fsm.EntityNotFound, fsm.FenceDelete, second)
	if code := b.do(fsm.FenceIdle{Entity: 9, Step: fsm.FenceSet}).Code; code != fsm.EntityNotFound {
		t.Errorf("an entity that deleted itself: %v", code)
	}
	b.put(8, 1, func(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = idleShardTime })
	if code := b.do(fsm.FenceIdle{Entity: 8, Step: fsm.FenceSet}).Code; code != fsm.NotAllowed {
		t.Errorf("an entity that is not a shard: %v", code)
	}
	for _, c := range []fsm.FenceIdle{{Step: fsm.FenceSet}, {Entity: 1}, {Entity: 1, Step: 4}, {Entity: 1, Step: fsm.FenceLift}, {Entity: 1, Step: fsm.FenceDelete}} {
		if code := fsm.Check(c); code != fsm.InvalidArgument {
			t.Errorf("%+v: %v", c, code)
		}
	}
}

// fencedShards is a partitioned queue in the state machines of its shards, and what was done with it.
type fencedShards struct {
	t       *testing.T
	random  *rand.Rand
	shards  []*between
	used    []fsm.Instant // by shard: the last use that was accepted
	late    []func()      // commands that arrive later, or never
	round   uint64        // of the coordinator, 0 for none
	pending []int         // shards that it has not fenced yet
	deleted bool
}

// TestShardsThatWereUsedAreNotDeleted deletes a partitioned queue while it is used. Commands are late or lost, coordinators
// fail at every step, others lift their fences, shards are restored. When the queue is deleted, every shard was idle, and none
// accepts anything afterwards: nothing that was accepted since is lost. If it is not deleted, no fence stays.
func TestShardsThatWereUsedAreNotDeleted(t *testing.T) {
	t.Parallel()
	deleted := 0
	for seed := range uint64(300) {
		w := &fencedShards{t: t, random: rand.New(rand.NewPCG(seed, 1)), used: make([]fsm.Instant, 3)}
		for range w.used {
			w.shards = append(w.shards, newShard(t, nil))
		}
		for i := range w.used {
			w.used[i] = w.shards[i].env.Now
		}
		for range 400 {
			w.step()
		}
		w.late, w.round = nil, 0
		for i := range w.shards {
			w.lift(i, true)
		}
		for i, b := range w.shards {
			if fences := b.q.FencedShards(); !w.deleted && len(fences) > 0 {
				t.Errorf("seed %d: shard %d stays fenced: %v", seed, i, fences)
			}
		}
		if w.deleted {
			deleted++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if deleted < 50 || deleted > 299 {
		t.Errorf("%d of 300 queues were deleted", deleted)
	}
}

func (w *fencedShards) step() {
	switch w.random.IntN(10) {
	case 0:
		d := idleShardTime / fsm.Millis(1+w.random.IntN(40))
		for _, b := range w.shards {
			b.pass(d)
		}
	case 1:
		i := w.random.IntN(len(w.shards))
		switch code := w.shards[i].do(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("x")}}}).Code; {
		case code == fsm.OK && w.deleted:
			w.t.Errorf("shard %d accepts a message after the deletion", i)
		case code == fsm.OK:
			w.used[i] = w.shards[i].env.Now
		case code != fsm.ServerBusy && (code != fsm.EntityNotFound || !w.deleted):
			w.t.Errorf("send: %v", code)
		}
	case 2:
		if len(w.late) > 0 {
			i := w.random.IntN(len(w.late))
			w.late[i]()
			w.late = slices.Delete(w.late, i, i+1)
		}
	case 3:
		if w.random.IntN(4) == 0 {
			w.lift(w.random.IntN(len(w.shards)), false)
		}
	case 4:
		b := w.shards[w.random.IntN(len(w.shards))]
		b.replica = b.restored()
	default:
		w.coordinate()
	}
}

// coordinate is the next step of the coordinator, or of the next one.
func (w *fencedShards) coordinate() {
	if w.random.IntN(20) == 0 {
		w.round = 0 // it fails
	}
	switch {
	case w.round == 0:
		if w.pending = nil; w.shards[0].isIdle(1) { // the first look
			w.command(0, fsm.FenceSet, 0, func(res fsm.Result) {
				if res.Code == fsm.OK {
					w.round, w.pending = res.Serial, []int{1, 2}
				}
			})
		}
	case len(w.pending) > 0:
		i, round := w.pending[0], w.round
		w.command(i, fsm.FenceSet, round, func(res fsm.Result) {
			switch {
			case round != w.round:
			case res.Code == fsm.OK:
				w.pending = slices.DeleteFunc(w.pending, func(j int) bool { return i == j })
			default:
				w.round = 0
				w.lift(0, false)
			}
		})
	default:
		w.command(0, fsm.FenceDelete, w.round, func(fsm.Result) { w.round = 0 })
	}
}

// command performs a step at a shard, or later.
func (w *fencedShards) command(i int, step fsm.FenceStep, round uint64, then func(fsm.Result)) {
	perform := func() {
		res := w.shards[i].fence(step, round)
		if step == fsm.FenceDelete && res.Code == fsm.OK {
			w.deleted = true
			for j, b := range w.shards {
				if w.used[j].After(idleShardTime) > b.env.Now {
					w.t.Errorf("deleted although shard %d was used at %d, and it is %d", j, w.used[j], b.env.Now)
				}
			}
		}
		then(res)
	}
	if w.random.IntN(5) == 0 {
		w.late = append(w.late, perform)
		return
	}
	perform()
}

// lift ends the round of a fence, and then lifts it.
func (w *fencedShards) lift(i int, now bool) {
	for _, f := range w.shards[i].q.FencedShards() {
		if w.shards[0].fence(fsm.FenceLift, f.Round).Code != fsm.OK {
			continue // it is deleted
		}
		perform := func() { w.shards[i].fence(fsm.FenceLift, f.Round) }
		if !now && w.random.IntN(5) == 0 {
			w.late = append(w.late, perform)
		} else {
			perform()
		}
	}
}
