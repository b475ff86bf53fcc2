package partition

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// The machines that groups replicate. The catalog has no bodies to move.
var (
	_ Machine   = (*queue.Machine)(nil)
	_ Machine   = (*catalog.Machine)(nil)
	_ bodyMover = (*queue.Machine)(nil)
)

func TestOneReplicaSendsLocksAndSettles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, nil)
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		a := &asker{origin: 7}
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		must(t, g, a.next(), send(1, body(1), body(2)))
		r := &asker{origin: 7, receiver: 1}
		got := lock(t, g, r.next(), lockOf(1, 10), time.Minute)
		if got.Outcome != Done || len(got.Result.Deliveries) != 2 {
			t.Fatalf("lock: %+v", got)
		}
		var settle fsm.SettleMessages
		settle.Address = fsm.Address{Entity: 1}
		for i, d := range got.Result.Deliveries {
			if !bytes.Equal(d.Payload, body(i+1)) {
				t.Errorf("delivery %d: %q", i, d.Payload)
			}
			settle.Settlements = append(settle.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
		}
		res := must(t, g, a.next(), settle)
		if diff := cmp.Diff([]fsm.Code{fsm.OK, fsm.OK}, res.Codes); diff != "" {
			t.Error(diff)
		}
		if s := g.Status(); s.LiveBytes != 0 {
			t.Errorf("%d bytes live after all was completed", s.LiveBytes)
		}
	})
}

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshot %v", snapshot), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ms := newMembers(t, 1, nil)
				ms[0].start(1)
				_, g := leader(t, ms, 1)
				a := &asker{origin: 7}
				must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
				for i := range 20 {
					must(t, g, a.next(), send(1, body(i)))
					if snapshot && i == 10 {
						kit.OK(t, g.Snapshot(t.Context()))
					}
				}
				ms[0].stop()
				ms[0].start(1)
				_, g = leader(t, ms, 1)
				r := &asker{origin: 7, receiver: 1}
				got := lock(t, g, r.next(), lockOf(1, 100), time.Minute)
				if len(got.Result.Deliveries) != 20 {
					t.Fatalf("%d deliveries", len(got.Result.Deliveries))
				}
				for i, d := range got.Result.Deliveries {
					if !bytes.Equal(d.Payload, body(i)) {
						t.Errorf("delivery %d: %q", i, d.Payload)
					}
				}
			})
		})
	}
}

// A command that ended Unknown is submitted again at the next leader and is applied once.
func TestNothingIsLostWhenTheLeaderDies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 3, nil)
		for _, m := range ms {
			m.start(1)
		}
		a := &asker{origin: 7}
		mustEventually(t, ms, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		h := a.next()
		first := mustEventually(t, ms, h, send(1, body(1)))
		r := &asker{origin: 7, receiver: 1}
		lh := r.next()
		locked := lockEventually(t, ms, lh, lockOf(1, 1), time.Minute)
		lm, _ := leader(t, ms, 1)
		lm.stop()
		again := mustEventually(t, ms, h, send(1, body(1)))
		if again.Sequence != first.Sequence {
			t.Errorf("sent twice: %d and %d", first.Sequence, again.Sequence)
		}
		relocked := lockEventually(t, ms, lh, lockOf(1, 1), time.Minute)
		// The location of the body is that of the replica, and a new leader may know the wall time a little differently.
		if diff := cmp.Diff(locked.Deliveries, relocked.Deliveries, cmpopts.IgnoreFields(fsm.Delivery{}, "Body", "LockedUntil")); diff != "" {
			t.Error(diff)
		}
		if got := lockEventually(t, ms, r.next(), lockOf(1, 1), 50*time.Millisecond); len(got.Deliveries) != 0 {
			t.Errorf("there is a second message: %+v", got)
		}
		mustEventually(t, ms, a.next(), send(1, body(2)))
		lm.start(1)
		waitCaughtUp(t, ms, lm)
	})
}

func TestFollowerRefusesCommands(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 3, nil)
		for _, m := range ms {
			m.start(1)
		}
		leader(t, ms, 1)
		for _, m := range ms {
			g := m.group(1)
			for {
				before := g.Status()
				if before.IsLeader {
					break
				}
				submitted := ask(t, g, fsm.Header{}, fsm.Pulse{})
				locked := lock(t, g, fsm.Header{Incarnation: 1, Receiver: 1, Serial: 1}, lockOf(1, 1), time.Second)
				err := g.Read(t.Context(), func(Machine) {})
				if g.Status().Term != before.Term {
					continue // it may have been the leader meanwhile
				}
				if submitted.Outcome != Refused || submitted.Result.Code != fsm.OK {
					t.Errorf("submit: %+v", submitted)
				}
				if locked.Outcome != Refused {
					t.Errorf("lock: %+v", locked)
				}
				if err == nil {
					t.Error("read on a follower")
				}
				break
			}
		}
	})
}
