package partition

import (
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/snapshots"
	"github.com/peeklock/peeklock/test/kit"
)

// unloadable is a machine whose image cannot be loaded, or is loaded as another state, while a fault is set.
type unloadable struct {
	Machine

	fault *atomic.Int32
}

const (
	faultNone int32 = iota
	faultPanic
	faultOther // the state lacks an entity
)

func (m unloadable) Restore(r io.Reader) error {
	if m.fault.Load() == faultPanic {
		panic("one sequence number in two sub-queues")
	}
	err := m.Machine.Restore(r)
	if m.fault.Load() == faultOther {
		m.Apply(fsm.Env{Index: 1 << 40, Now: m.Times().Wall}, fsm.AppendCommand(nil, fsm.Header{}, fsm.PutEntity{Entity: 77, Version: 1, Settings: settings()}))
	}
	return err
}

// A snapshot that cannot be loaded, or that is loaded as another state, costs no partition: the replica runs on, and opens
// with the snapshot before and the log behind that.
func TestSnapshotThatCannotBeLoadedIsReplaced(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]int32{"a panic": faultPanic, "another state": faultOther} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var planted atomic.Int32
				ms := newMembers(t, 1, func(c *Config) {
					c.Sizes.Trailing = 0
					c.Machine = func(b fsm.Bodies) Machine { return unloadable{queue.New(b), &planted} }
				})
				m, g, a := startSingle(t, ms)
				fill := func() {
					for i := range 2 * trailingEntriesUnknown {
						must(t, g, a.next(), send(1, body(i)))
					}
				}
				check := func() {
					t.Helper()
					g.snapshotter.checks.since = snapshotsPerCheck
					kit.OK(t, g.snapshotAndCheck(t.Context()))
				}
				fill()
				check()
				good, _ := g.snapshots.Newest()
				planted.Store(fault)
				fill()
				check()
				newest, _ := g.snapshots.Newest()
				s := g.Stats()
				if newest != good || s.SnapshotChecks != 2 || s.SnapshotChecksFailed != 1 || s.SnapshotChecksSkipped != 0 {
					t.Errorf("the newest snapshot ends at %d, that before at %d; %d checks, %d failed", newest.Index, good.Index, s.SnapshotChecks, s.SnapshotChecksFailed)
				}
				if err := g.Status().Halted; err != nil || g.Status().LogFirst > good.Index+1 {
					t.Errorf("the log begins at %d; halted: %v", g.Status().LogFirst, err)
				}
				fill()
				want := image(t, g)
				planted.Store(faultNone)
				m.stop()
				m.start(1)
				_, g = leader(t, ms, 1)
				kit.Eventually(t, "it has the same messages", func() bool { return len(image(t, g)) == len(want) })
				fill()
				check()
				if newest, _ := g.snapshots.Newest(); newest.Index <= good.Index || g.Stats().SnapshotChecksFailed != 0 {
					t.Errorf("the newest snapshot still ends at %d", newest.Index)
				}
				fill()
				kit.OK(t, g.Snapshot(t.Context()))
				if first := g.Status().LogFirst; first <= good.Index {
					t.Errorf("the log still begins at %d", first)
				}
			})
		})
	}
}

// marked is a machine whose image begins with a byte: an image that was frozen while it was set cannot be loaded by any machine.
type marked struct {
	*queue.Machine

	mark *atomic.Bool
}

func (m marked) Image() fsm.Image { return markedImage{m.Machine.Image(), m.mark.Load()} }

func (m marked) Restore(r io.Reader) error {
	readMark(r)
	return m.Machine.Restore(r)
}

func (m marked) CheckImage(r io.Reader) (uint64, error) {
	readMark(r)
	return m.Machine.CheckImage(r)
}

func readMark(r io.Reader) {
	var mark [1]byte
	if _, err := io.ReadFull(r, mark[:]); err != nil || mark[0] != 0 {
		panic("one sequence number in two sub-queues")
	}
}

type markedImage struct {
	fsm.Image

	mark bool
}

func (i markedImage) Digest() uint64 { return i.Image.(interface{ Digest() uint64 }).Digest() }

func (i markedImage) WriteTo(w io.Writer) (int64, error) {
	mark := []byte{0}
	if i.mark {
		mark[0] = 1
	}
	if _, err := w.Write(mark); err != nil {
		return 0, err
	}
	n, err := i.Image.WriteTo(w)
	return n + 1, err
}

// A state that no replica can load costs no partition: a replica that finds it, and one that stops before it has found it, go back to the
// snapshot before and to the log behind that. All of them open again while the state cannot be loaded, and go on when it can be.
func TestReplicasOpenWithTheSnapshotBeforeOneThatNobodyCanLoad(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]bool{"loaded": true, "decoded as a stream": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit.InBubble(t, func(t *testing.T) {
				var planted atomic.Bool
				ms, a := threeReplicas(t, func(c *Config) {
					c.Sizes.Trailing = 0
					c.Machine = func(b fsm.Bodies) Machine { return marked{queue.New(b), &planted} }
				})
				fill := func() {
					t.Helper()
					for range 2 * trailingEntriesUnknown {
						mustEventually(t, ms, a.next(), send(1, body(1)))
					}
				}
				check := func(g *Group) {
					t.Helper()
					g.snapshotter.checks.fits = func(int64) bool { return build }
					g.snapshotter.checks.since = snapshotsPerCheck * len(ms)
					kit.OK(t, g.snapshotAndCheck(t.Context()))
				}
				fill()
				lm, _ := leader(t, ms, 1)
				var finds, stops *member // the follower that finds it, and the one that stops before
				for _, m := range ms {
					waitCaughtUp(t, ms, m)
					switch {
					case m == lm:
					case finds == nil:
						finds = m
					default:
						stops = m
					}
				}
				good := make(map[*member]uint64)
				for _, m := range []*member{finds, stops} {
					check(m.group(1))
					newest, _ := m.group(1).snapshots.Newest()
					good[m] = newest.Index
					if s := m.group(1).Stats(); s.SnapshotChecks != 1 || s.SnapshotChecksFailed != 0 || (s.SnapshotChecksSkipped == 0) != build {
						t.Fatalf("after the first check: %+v", s)
					}
				}
				planted.Store(true)
				fill()
				for _, m := range []*member{finds, stops} {
					waitCaughtUp(t, ms, m)
				}
				check(finds.group(1))
				g := stops.group(1)
				g.snapshots.Hold() // it is not released
				g.snapshotter.checks.due.Store(true)
				kit.OK(t, g.Snapshot(t.Context()))
				if newest, _ := g.snapshots.Newest(); newest.Index == good[stops] {
					t.Fatal("there is no second snapshot")
				}
				for _, m := range []*member{finds, stops} {
					if m == finds && m.group(1).Stats().SnapshotChecksFailed != 1 {
						t.Error("the check of a state that cannot be loaded has not failed")
					}
					m.stop()
					m.start(1)
					g := m.group(1)
					newest, _ := g.snapshots.Newest()
					if newest.Index != good[m] {
						t.Errorf("%s opened with the snapshot up to %d, want %d", m.id, newest.Index, good[m])
					}
					if failed := g.Stats().SnapshotChecksFailed; (failed == 1) != (m == stops) {
						t.Errorf("%s reports %d failures", m.id, failed)
					}
					fill()
					waitCaughtUp(t, ms, m)
				}
				planted.Store(false)
				_, lg := leader(t, ms, 1)
				for _, m := range []*member{finds, stops} {
					waitCaughtUp(t, ms, m)
					g := m.group(1)
					check(g)
					if newest, _ := g.snapshots.Newest(); newest.Index <= good[m] || g.snapshotter.checks.failed {
						t.Errorf("the newest snapshot of %s ends at %d", m.id, newest.Index)
					}
					if len(image(t, g)) != len(image(t, lg)) {
						t.Errorf("%s has another state than the leader", m.id)
					}
				}
			})
		})
	}
}

// The check ends, and the snapshot before goes, when the log behind that exceeds its bound.
func TestSnapshotBeforeIsKeptWithinABound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, func(c *Config) { c.Sizes.Trailing = 0 })
		_, g, a := startSingle(t, ms)
		k := &g.snapshotter
		for _, before := range []bool{true, false} { // beyond the bound before the check, and while the snapshot is read
			must(t, g, a.next(), send(1, body(1)))
			kit.OK(t, g.Snapshot(t.Context()))
			must(t, g, a.next(), send(1, body(2)))
			grow := func() { k.total.Add(checkLogFactorMax*uint64(g.cfg.Sizes.Snapshot) + 1) }
			k.checks.failed, k.checks.passedAt = true, k.total.Load()
			k.checks.fits = func(int64) bool {
				if !before {
					grow()
				}
				return true
			}
			if before {
				grow()
			}
			counted := g.Stats()
			kit.OK(t, g.snapshotAndCheck(t.Context()))
			after := g.Stats()
			if after.SnapshotChecksUnprotected != counted.SnapshotChecksUnprotected+1 || (after.SnapshotChecks == counted.SnapshotChecks) == before {
				t.Errorf("beyond the bound before the check %v: %+v, then %+v", before, counted, after)
			}
			if former, err := snapshots.FindBefore(second(g.snapshots.Newest())); former != nil || err != nil {
				t.Errorf("the snapshot before is still there: %v, %v", former, err)
			}
		}
	})
}

func second(s *snapshots.Snapshot, _ uint64) *snapshots.Snapshot { return s }

// Followers take turns: of about ten snapshots one is loaded, and at least one in an hour. A leader with followers loads none.
func TestFollowersTakeTurnsInLoadingSnapshots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const followers = 2
		for _, every := range []time.Duration{time.Minute, 30 * time.Minute} {
			var replicas [followers]snapshotChecks
			loaded := 0
			const snapshots = 400 // of each follower
			for n := range snapshots {
				now := time.Duration(n) * every
				for position := range replicas {
					c := &replicas[position]
					if c.since++; c.isDue(now, position, followers) {
						c.since, c.at = 0, now
						c.done.Add(1)
						loaded++
					}
				}
			}
			least := max(snapshots/snapshotsPerCheck, int(snapshots*every/snapshotCheckEvery)) * 9 / 10
			if loaded < least || loaded > least*3/2 {
				t.Errorf("a snapshot every %v: %d loaded, want about %d", every, loaded, least)
			}
		}
		ms, a := threeReplicas(t, nil)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		_, g := leader(t, ms, 1)
		turns := make(map[int]bool)
		for _, m := range ms {
			waitCaughtUp(t, ms, m)
			if position, n, ok := m.group(1).checkTurn(); ok {
				turns[position] = n == followers && m.group(1) != g
			}
		}
		if len(turns) != followers || !turns[0] || !turns[1] {
			t.Errorf("turns %v", turns)
		}
	})
}

// BenchmarkSnapshotCheck checks a snapshot of a million messages beside the machine that has written it.
func BenchmarkSnapshotCheck(b *testing.B) {
	const messages, perCommand = 1_000_000, 100
	dir, files := b.TempDir(), disk.OS{}
	bodies, err := bodystore.Open(files, filepath.Join(dir, "seg"), 0, nil, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	defer bodies.Close()
	machine := queue.New(&countedBodies{})
	now := fsm.Instant(1)
	apply := func(index uint64, c fsm.Command) {
		if r := machine.Apply(fsm.Env{Index: index, Now: now, Serving: now}, fsm.AppendCommand(nil, fsm.Header{}, c)); r.Code != fsm.OK {
			b.Fatal(r.Code)
		}
	}
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	for i := range uint64(messages / perCommand) {
		var many [][]byte
		for range perCommand {
			many = append(many, make([]byte, 100+rand.IntN(100)))
		}
		apply(2+i, send(1, many...))
	}
	machine.Effects()
	if _, _, err := snapshots.Find(files, filepath.Join(dir, "snap")); err != nil {
		b.Fatal(err)
	}
	var loaded []snapshots.Machine
	store := snapshots.New(snapshots.Config{
		Files: files, Dir: filepath.Join(dir, "snap"), Bodies: bodies,
		Machine: func(at fsm.Bodies) snapshots.Machine { m := queue.New(at); loaded = []snapshots.Machine{m}; return m },
		Fail:    func(err error) { b.Error(err) }, Received: func() {}, LogBytes: func() uint64 { return 0 },
	}, nil, 0)
	sink, err := store.Create(1, messages, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	frozen := &snapshots.Frozen{Bodies: bodies, Image: machine.Image(), Applied: messages, Config: 1, Digested: true, Saved: func() {}}
	if err := errors.Join(frozen.Persist(sink), sink.Close()); err != nil {
		b.Fatal(err)
	}
	store.EndOwn()
	newest, _ := store.Newest()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, build := range map[string]bool{"loaded": true, "stream": false} {
		b.Run(name, func(b *testing.B) {
			loaded = nil
			before := heap()
			for b.Loop() {
				if err := store.Check(newest, build, b.Context().Err); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(newest.ImageBytes), "image-B")
			b.ReportMetric(float64(heap()-before), "state-B")
			runtime.KeepAlive(loaded)
		})
	}
}

// countedBodies gives each body a place and keeps none.
type countedBodies struct{ n uint32 }

func (c *countedBodies) Append(_ fsm.Owner, body []byte) fsm.Ref {
	c.n++
	return fsm.Ref{Segment: 1 + c.n>>20, Offset: c.n, Size: uint32(len(body))}
}

func (c *countedBodies) Read(ref fsm.Ref) []byte { return make([]byte, ref.Size) }

func (c *countedBodies) Release(fsm.Ref) {}
