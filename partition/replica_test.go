package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// threeReplicas starts three members with one group and one queue, entity 1.
func threeReplicas(t *testing.T, tune func(*Config)) ([]*member, *asker) {
	t.Helper()
	ms := newMembers(t, 3, tune)
	return ms, startThree(t, ms)
}

// startThree starts a group of three with one queue, entity 1. Any member may lead it.
func startThree(t *testing.T, ms []*member) *asker {
	t.Helper()
	for _, m := range ms {
		m.start(1)
	}
	awaitFirstLeader(t, ms, ms[0])
	a := &asker{origin: 7}
	mustEventually(t, ms, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	return a
}

// image returns the state of a replica with bodies instead of references.
func image(t *testing.T, g *Group) map[fsm.Owner]string {
	t.Helper()
	all := make(map[fsm.Owner]string)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.machine.Refs(func(o fsm.Owner, r fsm.Ref) fsm.Ref {
		all[o] = string(g.bodies.Read(r))
		return r
	})
	return all
}

func sameEverywhere(t *testing.T, ms []*member) {
	t.Helper()
	g := currentLeader(t, ms)
	want := image(t, g)
	for _, m := range ms {
		r := m.group(1)
		kit.Eventually(t, "the replica has applied all", func() bool { return r.Status().Applied >= g.Status().Applied })
		if diff := cmp.Diff(want, image(t, r)); diff != "" {
			t.Errorf("%s differs:\n%s", m.id, diff)
		}
	}
}

// aFollower returns a member that is not the leader, and all others.
func aFollower(ms []*member, leader *member) (follower *member, rest []*member) {
	at := slices.IndexFunc(ms, func(m *member) bool { return m != leader })
	return ms[at], slices.Delete(slices.Clone(ms), at, at+1)
}

// others returns the members but one.
func others(ms []*member, one *member) []*member {
	return slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == one })
}

// compactLogs has members write snapshots, until the log of none of them reaches back to its first hundred entries:
// whichever leads when another replica returns has to send a snapshot.
func compactLogs(t *testing.T, ms []*member) {
	t.Helper()
	for _, m := range ms {
		waitCaughtUp(t, ms, m)
		for range 2 {
			kit.OK(t, m.group(1).Snapshot(t.Context()))
		}
		if s := m.group(1).Status(); s.LogFirst < 100 {
			t.Fatalf("the log of %s still begins at %d", m.id, s.LogFirst)
		}
	}
}

// newestSerial returns the serial number of the newest snapshot that a member has written or received.
func newestSerial(m *member) uint64 {
	_, serial := m.group(1).snapshots.Newest()
	return serial
}

// A replica that was down for longer than the log reaches back receives a snapshot with its bodies, and can
// then be the leader.
func TestLaggingFollowerGetsASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, func(c *Config) { c.Sizes.Segment = 8 << 10 })
		mustEventually(t, ms, a.next(), send(1, []byte("old")))
		lm, _ := leader(t, ms, 1)
		away, rest := aFollower(ms, lm)
		away.stop()
		r := &asker{origin: 7, receiver: 1}
		for i := range 600 {
			mustEventually(t, rest, a.next(), send(1, fmt.Appendf(nil, "%0*d", i%200, i)))
			if i%3 == 0 { // some are completed, some get patches
				got := lockEventually(t, rest, r.next(), lockOf(1, 1), time.Minute)
				verb := fsm.Complete
				if i%2 == 0 {
					verb = fsm.DeadLetter
				}
				mustEventually(t, rest, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
					{Lock: got.Deliveries[0].Lock, Verb: verb, Reason: "why", Description: fmt.Sprint(i)},
				}})
			}
		}
		compactLogs(t, rest)
		away.start(1)
		waitCaughtUp(t, rest, away)
		if newest, _ := away.group(1).snapshots.Newest(); newest == nil || !newest.Remapped {
			t.Error("it came without a snapshot")
		}
		sameEverywhere(t, ms)
		mustEventually(t, ms, a.next(), send(1, []byte("the first entry behind its snapshot")))
		waitCaughtUp(t, ms, away)
		// Once more from its own disk, and then as the sender of a snapshot.
		away.stop()
		away.start(1)
		waitCaughtUp(t, ms, away)
		sameEverywhere(t, ms)
		transferTo(t, ms, away)
		mustEventually(t, ms, a.next(), send(1, []byte("new")))
		sameEverywhere(t, ms)
	})
}

// copyFolder copies the files as a crash leaves them, while the process runs.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	kit.OK(t, os.CopyFS(to, os.DirFS(from)))
}

// After a crash the segments are truncated to the snapshot and the log is replayed: with the unsynced tail
// present, truncated, or lost.
func TestConfirmedMessagesSurviveACrash(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"kept", "cut", "gone"} {
		t.Run("tail "+tail, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				m, g, a := openSingle(t, func(c *Config) { c.Sizes.Segment = 16 << 10 })
				r := &asker{origin: 7, receiver: 1}
				work := func(n int) {
					for i := range n {
						must(t, g, a.next(), send(1, bytes.Repeat(body(i), 20)))
						if i%4 == 0 {
							got := lock(t, g, r.next(), lockOf(1, 2), time.Minute)
							must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
								{Lock: got.Result.Deliveries[0].Lock, Verb: fsm.Complete},
							}})
						}
					}
				}
				work(100)
				kit.OK(t, g.Snapshot(t.Context()))
				newest, _ := g.snapshots.Newest()
				listed := make(map[string]int64)
				for _, s := range newest.Segments {
					listed[filepath.Base(bodystore.Path("", s.Number))] = s.Size
				}
				work(100)
				want := image(t, g)
				second := &member{t: t, net: m.net, id: m.id, dir: kit.MemoryDir(t), tune: m.tune, voters: m.voters}
				copyFolder(t, m.dir, second.dir)
				segs := filepath.Join(second.dir, "groups", "1", "seg")
				names, err := os.ReadDir(segs)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range names {
					path := filepath.Join(segs, n.Name())
					size, ok := listed[n.Name()]
					switch {
					case tail == "cut" && ok:
						err = os.Truncate(path, size)
					case tail == "cut":
						err = os.Truncate(path, 5)
					case tail == "gone" && !ok:
						err = os.Remove(path)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				m.stop()
				second.start(1)
				defer second.stop()
				_, g2 := leader(t, []*member{second}, 1)
				if diff := cmp.Diff(want, image(t, g2)); diff != "" {
					t.Error(diff)
				}
				if s := g2.Status(); s.Halted != nil {
					t.Error(s.Halted)
				}
			})
		})
	}
}

// TestPeekReadsWhatIsOnlyInMemory: a message whose body has not been written to a file yet can be read by those who do
// not hold the machine.
func TestPeekReadsWhatIsOnlyInMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		must(t, g, a.next(), send(1, body(1)))
		var seen []fsm.Delivery
		g.View(func(m Machine) { seen = m.(*queue.Machine).Peek(fsm.Address{Entity: 1}, 0, 1) })
		if _, err := g.bodies.ReadBodies(slices.Clone(seen)); !errors.Is(err, bodystore.ErrUnwritten) {
			t.Fatalf("the body was written: %v", err)
		}
		seen, err := g.ReadBodies(seen)
		if err != nil || len(seen) != 1 || !bytes.Equal(seen[0].Payload, body(1)) {
			t.Errorf("peeked at %+v: %v", seen, err)
		}
	})
}

// A bad checksum stops the replica that has it, and no other; its bytes are kept.
func TestDamagedBodyStopsTheReplica(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, func(c *Config) { c.Sizes.Segment = 4 << 10 })
		for i := range 50 {
			mustEventually(t, ms, a.next(), send(1, bytes.Repeat(body(i), 40)))
		}
		lm, g := leader(t, ms, 1)
		path := bodystore.Path(filepath.Join(lm.dir, "groups", "1", "seg"), 1)
		kit.FlipBit(t, path, bodystore.HeaderBytes+bodystore.RecordHeaderBytes+3)
		before := kit.Must(os.ReadFile(path))(t)
		r := &asker{origin: 7, receiver: 1}
		h := r.next()
		got := lock(t, g, h, lockOf(1, 1), time.Minute)
		for got.Outcome == Refused && g.Status().Halted == nil { // it had lost leadership
			transferTo(t, ms, lm)
			got = lock(t, g, h, lockOf(1, 1), time.Minute)
		}
		if got.Outcome != Unknown {
			t.Errorf("the damaged body was answered: %+v", got)
		}
		if err := g.Status().Halted; !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("halted: %v", err)
		}
		var others []*member
		for _, m := range ms {
			if m != lm {
				others = append(others, m)
			}
		}
		next := lockEventually(t, others, h, lockOf(1, 1), time.Minute)
		if len(next.Deliveries) != 1 || !bytes.Equal(next.Deliveries[0].Payload, bytes.Repeat(body(0), 40)) {
			t.Errorf("the next leader: %+v", next)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Error("the damaged file was touched")
		}
		if a := ask(t, g, fsm.Header{}, fsm.Pulse{}); a.Outcome != Refused {
			t.Errorf("a stopped replica takes commands: %+v", a)
		}
	})
}

func TestDamagedSnapshotIsNotOpened(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"manifest", "image"} {
		t.Run(file, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				m, g, a := openSingle(t, nil)
				for i := range 10 {
					must(t, g, a.next(), send(1, body(i)))
				}
				kit.OK(t, g.Snapshot(t.Context()))
				m.stop()
				found, err := filepath.Glob(filepath.Join(m.dir, "groups", "1", "snap", "*", file))
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				kit.FlipBit(t, found[0], 20)
				segs := filepath.Join(m.dir, "groups", "1", "seg")
				stray := bodystore.Path(segs, 77)
				kit.OK(t, os.WriteFile(stray, []byte("what came after the snapshot"), 0o600))
				if err := m.tryStart(1); err == nil {
					t.Error("it opened")
				}
				if n := kit.CountFiles(t, segs, "*.seg"); n != 2 {
					t.Errorf("%d segments left", n)
				}
				if _, err := os.Stat(found[0]); err != nil {
					t.Error(err)
				}
				// Without any snapshot the log alone must not be taken for the whole state.
				_ = os.Remove(found[0])
				if err := m.tryStart(1); err == nil {
					t.Error("it opened without the file")
				}
			})
		})
	}
}

// An unknown entry stops the replica and is not skipped.
func TestUnknownEntryStopsTheReplica(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"entry version": {9, 9, 9},
		"command kind":  encodeEntry(fsm.Times{Wall: 1, Serving: 1}, 2, [][]byte{{1, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				_, g, _ := openSingle(t, nil)
				before := g.Status().Applied
				_ = g.instance.Load().raft.Apply(data, time.Second).Error()
				kit.Eventually(t, "it stops", func() bool { return g.Status().Halted != nil })
				if s := g.Status(); s.Applied != before {
					t.Errorf("applied went on to %d", s.Applied)
				}
				if err := g.Read(t.Context(), func(Machine) {}); !errors.Is(err, ErrClosed) {
					t.Errorf("read: %v", err)
				}
				kit.Eventually(t, "it leads no more", func() bool { return !g.Status().IsLeader })
			})
		})
	}
}

// The log and the segments are bounded by the live messages, not by the throughput.
func TestLogIsBounded(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, func(c *Config) {
			c.Sizes = Sizes{Segment: 256 << 10, Snapshot: 1 << 20, Trailing: 0}
		})
		r := &asker{origin: 7, receiver: 1}
		payload := make([]byte, 8<<10)
		for range 1000 {
			must(t, g, a.next(), send(1, payload))
			got := lock(t, g, r.next(), lockOf(1, 1), time.Minute)
			must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
				{Lock: got.Result.Deliveries[0].Lock, Verb: fsm.Complete},
			}})
		}
		kit.Eventually(t, "snapshots cut the log", func() bool {
			s := g.Status()
			return s.LogLast-s.LogFirst < 2*trailingEntriesMin+600
		})
		if s := g.Status(); s.BodyBytes > 4<<20 || s.LiveBytes != 0 {
			t.Errorf("%d bytes of bodies of 8 MiB sent, %d live", s.BodyBytes, s.LiveBytes)
		}
	})
}

// A sparse segment is rewritten; its remaining messages stay readable, also after a restart from a state
// before or after.
func TestCompactionKeepsLiveBodies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m, g, a := openSingle(t, func(c *Config) { c.Sizes.Segment = 32 << 10 })
		r := &asker{origin: 7, receiver: 1}
		for i := range 200 {
			must(t, g, a.next(), send(1, bytes.Repeat(body(i), 100)))
		}
		for i := range 200 {
			got := lock(t, g, r.next(), lockOf(1, 1), time.Minute)
			verb := fsm.Complete
			if i%25 == 0 {
				verb = fsm.Defer
			}
			must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
				{Lock: got.Result.Deliveries[0].Lock, Verb: verb, Properties: []byte{1}},
			}})
		}
		want := image(t, g)
		before := g.Status()
		kit.OK(t, g.Snapshot(t.Context()))
		g.compact(t.Context())
		if diff := cmp.Diff(want, image(t, g)); diff != "" {
			t.Fatal(diff)
		}
		kit.OK(t, g.Snapshot(t.Context()))
		after := g.Status()
		if after.LiveBytes != before.LiveBytes || after.BodyBytes >= before.BodyBytes/2 {
			t.Errorf("before %d of %d live, after %d of %d", before.LiveBytes, before.BodyBytes, after.LiveBytes, after.BodyBytes)
		}
		m.stop()
		m.start(1)
		_, g = leader(t, []*member{m}, 1)
		if diff := cmp.Diff(want, image(t, g)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTransferIsTriedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, _ := threeReplicas(t, nil)
		for i := range ms {
			var lm, other *member
			err := atLeader(t, ms, func(m *member, g *Group) error {
				if err := g.Transfer(t.Context(), m.id); err == nil {
					t.Error("transfer to itself")
				}
				if err := g.Transfer(t.Context(), "nobody"); err == nil {
					t.Error("transfer to an unknown replica")
				}
				g.proposer.mu.Lock()
				g.proposer.transferTerm = g.proposer.term
				g.proposer.mu.Unlock()
				lm, other = m, ms[i]
				if other == m {
					other = ms[(i+1)%len(ms)]
				}
				return g.Transfer(t.Context(), other.id)
			})
			if !errors.Is(err, ErrTransferUsed) {
				t.Errorf("a second transfer: %v", err)
			}
			err = other.group(1).Transfer(t.Context(), lm.id)
			if !errors.Is(err, ErrNotLeader) && lm.group(1).Status().IsLeader {
				t.Errorf("transfer by a follower: %v", err)
			}
		}
	})
}

// A leader that is cut off ends its entries in flight with Unknown and refuses later commands, and all
// replicas are equal afterwards.
func TestCutOffLeaderConfirmsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		lm, g := leader(t, ms, 1)
		lm.net.isolate(lm.id, true)
		// The answer to a heartbeat that was in flight may confirm the first read, at once (docs/raft-notes.md).
		if g.Read(t.Context(), func(Machine) {}) == nil {
			if !g.Status().IsLeader || g.Read(t.Context(), func(Machine) {}) == nil {
				t.Error("a leader that is cut off has read without a quorum")
			}
		}
		got := make(chan Answer, 1)
		h := a.next()
		g.Submit(fsm.AppendCommand(nil, h, send(1, body(1))), func(a Answer) { got <- a })
		if x := await1(t, got); x.Outcome != Unknown && x.Outcome != Refused {
			t.Errorf("%+v", x)
		}
		kit.Eventually(t, "the one cut off steps down", func() bool { return !g.Status().IsLeader })
		if x := ask(t, g, a.next(), send(1, body(9))); x.Outcome != Refused {
			t.Errorf("%+v", x)
		}
		if err := g.Read(t.Context(), func(Machine) {}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("read: %v", err)
		}
		var others []*member
		for _, m := range ms {
			if m != lm {
				others = append(others, m)
			}
		}
		mustEventually(t, others, h, send(1, body(1)))
		mustEventually(t, others, a.next(), send(1, body(2)))
		lm.net.isolate(lm.id, false)
		sameEverywhere(t, ms)
		if n := len(image(t, g)); n != 2 {
			t.Errorf("%d messages", n)
		}
	})
}

// A raft instance that got stuck is reopened within the process, and the machine continues where it was.
func TestRaftIsReopened(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		for i := range 20 {
			mustEventually(t, ms, a.next(), send(1, body(i)))
			if i == 10 {
				kit.OK(t, ms[0].group(1).Snapshot(t.Context()))
			}
		}
		for _, m := range ms {
			old := m.group(1).instance.Load()
			m.group(1).requestReopen("a test")
			kit.Eventually(t, "raft is reopened", func() bool { return m.group(1).instance.Load() != old })
		}
		mustEventually(t, ms, a.next(), send(1, body(20)))
		_, g := leader(t, ms, 1)
		kit.OK(t, g.Snapshot(t.Context()))
		sameEverywhere(t, ms)
		if n := len(image(t, g)); n != 21 {
			t.Errorf("%d messages", n)
		}
	})
}

// Successive snapshots of the leader without an entry between them mean that raft is in a loop.
func TestRepeatedInstallsReopenRaft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		old := g.instance.Load()
		for range installsWithoutApplyMax {
			g.noteSnapshotInstalled()
		}
		must(t, g, a.next(), send(1, body(1))) // an entry: the snapshots had an effect
		for range installsWithoutApplyMax {
			g.noteSnapshotInstalled()
		}
		if g.instance.Load() != old || len(g.reopen) != 0 {
			t.Error("reopened too early")
		}
		g.noteSnapshotInstalled()
		kit.Eventually(t, "raft is reopened", func() bool { return g.instance.Load() != old })
	})
}

func TestReadSeesConfirmedCommands(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		for i := range 50 {
			mustEventually(t, ms, a.next(), send(1, body(i)))
			var n uint64
			if err := atLeader(t, ms, func(_ *member, g *Group) error {
				n = 0
				return g.Read(t.Context(), func(m Machine) {
					m.Refs(func(_ fsm.Owner, r fsm.Ref) fsm.Ref {
						n++
						return r
					})
				})
			}); err != nil || n != uint64(i+1) {
				t.Fatalf("read sees %d of %d: %v", n, i+1, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := atLeader(t, ms, func(_ *member, g *Group) error { return g.Read(ctx, func(Machine) {}) })
		if !errors.Is(err, context.Canceled) && err != nil {
			t.Errorf("read with an ended context: %v", err)
		}
	})
}

func TestCloseIsIdempotent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, _ := openSingle(t, nil)
		for range 2 {
			kit.OK(t, g.Close(t.Context()))
		}
		if a := ask(t, g, fsm.Header{}, fsm.Pulse{}); a.Outcome != Refused {
			t.Errorf("%+v", a)
		}
		if s := g.Status(); s.IsLeader {
			t.Error("a closed group leads")
		}
	})
}
