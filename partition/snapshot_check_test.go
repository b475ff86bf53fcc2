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
					if err := g.snapshotAndCheck(t.Context()); err != nil {
						t.Fatal(err)
					}
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
				if err := g.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				if first := g.Status().LogFirst; first <= good.Index {
					t.Errorf("the log still begins at %d", first)
				}
			})
		})
	}
}

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
					if c.isDue(now, position, followers) {
						c.since, c.at = 0, now
						c.done.Add(1)
						loaded++
						continue
					}
					c.since++
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

// BenchmarkSnapshotCheck loads a snapshot of a million messages beside the machine that has written it.
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
	before := heap()
	for b.Loop() {
		if err := store.Check(newest); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(newest.ImageBytes), "image-B")
	b.ReportMetric(float64(heap()-before), "state-B")
	runtime.KeepAlive(loaded)
	began := time.Now()
	if err := store.CheckBytes(newest); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began)), "checksum-ns")
}

// countedBodies gives each body a place and keeps none.
type countedBodies struct{ n uint32 }

func (c *countedBodies) Append(_ fsm.Owner, body []byte) fsm.Ref {
	c.n++
	return fsm.Ref{Segment: 1 + c.n>>20, Offset: c.n, Size: uint32(len(body))}
}

func (c *countedBodies) Read(ref fsm.Ref) []byte { return make([]byte, ref.Size) }

func (c *countedBodies) Release(fsm.Ref) {}
