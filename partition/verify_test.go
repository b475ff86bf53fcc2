package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/test/kit"
)

// Checkpoints are at the same indexes on every replica, whatever entries raft adds between them, and equal;
// they continue unchanged after a restart from a snapshot.
func TestCheckpointsAgree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		for i := range 30 {
			mustEventually(t, ms, a.next(), send(1, body(i)))
		}
		sums := func() (all []digest.State) {
			t.Helper()
			waitCaughtUp(t, ms, ms[0])
			waitCaughtUp(t, ms, ms[1])
			waitCaughtUp(t, ms, ms[2])
			for _, m := range ms {
				g := m.group(1)
				g.mu.Lock()
				all = append(all, g.rolling.State())
				g.mu.Unlock()
			}
			return all
		}
		same := func(all []digest.State) {
			t.Helper()
			if all[0] != all[1] || all[1] != all[2] || all[0].DigestVersion == 0 {
				t.Errorf("digests %+v", all)
			}
		}
		before := sums()
		same(before)
		kit.OK(t, ms[1].group(1).Snapshot(t.Context()))
		ms[1].stop()
		mustEventually(t, []*member{ms[0], ms[2]}, a.next(), send(1, body(1)))
		ms[1].start(1)
		after := sums()
		same(after)
		if before[0] == after[0] {
			t.Error("an entry left the digest as it was")
		}
	})
}

// A diverged replica is found by its digests and stops with a reason; the others continue. A correct replica
// cannot be stopped that way.
func TestDivergedReplicaStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		for i := range 5 {
			mustEventually(t, ms, a.next(), send(1, body(i)))
		}
		lm, g := leader(t, ms, 1)
		// The planted bug: this replica, the leader, has a queue that does not exist elsewhere. The results of
		// sends to it differ then.
		g.mu.Lock()
		g.machine.Apply(fsm.Env{Index: g.applied.Load(), Now: g.machine.Times().Wall},
			fsm.AppendCommand(nil, fsm.Header{}, fsm.PutEntity{Entity: 2, Version: 1, Settings: settings()}))
		g.mu.Unlock()
		h := a.next()
		encoded := fsm.AppendCommand(nil, h, send(2, body(1)))
		router(t, ms, h, func(g *Group, done func(Answer)) { g.Submit(encoded, done) }) // at the current leader
		for _, m := range ms {
			waitCaughtUp(t, ms, m)
			r := m.group(1)
			r.mu.Lock()
			r.rolling.Checkpoint(r.applied.Load(), digest.CheckpointEntries+1) // as if so many had been applied
			r.mu.Unlock()
		}
		of := make(map[string][]Checkpoint)
		for _, m := range ms {
			of[m.group(1).cfg.Replica] = m.group(1).Checkpoints()
		}
		d := CompareCheckpoints(of, 3)
		if diff := cmp.Diff([]string{g.cfg.Replica}, d.Outliers); diff != "" {
			t.Fatalf("%+v: %s", d, diff)
		}
		for _, m := range ms {
			err := m.group(1).HaltDiverged(d.Majority)
			if (err == nil) != (m == lm) {
				t.Errorf("%s: %v", m.id, err)
			}
		}
		if err := g.HaltDiverged(Checkpoint{Index: 1}); err == nil {
			t.Error("halted for an index that it does not know")
		}
		if err := g.Status().Halted; !errors.Is(err, ErrDiverged) {
			t.Errorf("halted: %v", err)
		}
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
		mustEventually(t, rest, a.next(), send(1, body(9)))
	})
}

// Verify compares whole states at one index while the group is busy or idle.
func TestVerifyComparesTheWholeState(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy %v", busy), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ms, a := threeReplicas(t, nil)
				for i := range 50 {
					mustEventually(t, ms, a.next(), send(1, body(i)))
				}
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					more := &asker{origin: 100, receiver: 1}
					for i := 0; busy; i++ {
						select {
						case <-stop:
							return
						default:
						}
						h := more.next()
						c := fsm.AppendCommand(nil, h, send(1, body(i)))
						router(t, ms, h, func(g *Group, done func(Answer)) { g.Submit(c, done) })
					}
				}()
				var v Verification
				verify := func() {
					t.Helper()
					kit.OK(t, atLeader(t, ms, func(_ *member, g *Group) (err error) {
						v, err = g.Verify(t.Context(), func(ctx context.Context, to fsm.MemberID, index uint64) (uint64, error) {
							at := slices.IndexFunc(ms, func(m *member) bool { return m.id == to })
							return ms[at].group(1).DigestAt(ctx, index)
						})
						return err
					}))
				}
				verify()
				if !agree(&v) || len(v.Digests) != 3 {
					t.Errorf("%+v", v)
				}
				close(stop)
				<-stopped
				// A difference that no answer shows.
				g := ms[0].group(1)
				g.mu.Lock()
				g.machine.Apply(fsm.Env{Index: g.applied.Load(), Now: g.machine.Times().Wall},
					fsm.AppendCommand(nil, fsm.Header{}, fsm.PutEntity{Entity: 2, Version: 1, Settings: settings()}))
				g.mu.Unlock()
				verify()
				if agree(&v) || v.Digests["m1.1"] != v.Digests["m2.1"] || v.Digests["m0.1"] == v.Digests["m1.1"] {
					t.Errorf("%+v", v)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				for i := range digestsWaitingMax + 1 {
					if _, err := g.DigestAt(ctx, g.Status().Applied+1e6); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%d: an index that never comes: %v", i, err)
					}
				}
				if _, err := g.DigestAt(t.Context(), 1); !errors.Is(err, ErrPassed) {
					t.Errorf("an index that has passed: %v", err)
				}
			})
		})
	}
}

// agree reports whether all replicas have answered with the same digest.
func agree(v *Verification) bool {
	seen := make(map[uint64]bool)
	for _, d := range v.Digests {
		seen[d] = true
	}
	return len(v.Missing) == 0 && len(seen) == 1
}
