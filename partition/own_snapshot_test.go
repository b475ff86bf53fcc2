package partition

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// gate holds the first call that passes it while it is closed.
type gate struct {
	closed  atomic.Bool
	reached chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) pass() {
	if g.closed.CompareAndSwap(true, false) {
		close(g.reached)
		<-g.open
	}
}

// gatedFiles holds the creation of the image of a snapshot, or the sync of the folder that makes it valid.
type gatedFiles struct {
	disk.OS

	gate *gate
	sync bool
}

func (f gatedFiles) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if !f.sync && filepath.Base(path) == "image" {
		f.gate.pass()
	}
	return f.OS.OpenFile(path, flag, mode)
}

func (f gatedFiles) SyncFolder(path string) error {
	if f.sync && filepath.Base(path) == "snap" {
		f.gate.pass()
	}
	return f.OS.SyncFolder(path)
}

// gatedStore holds a deletion, with which raft compacts the log behind a snapshot.
type gatedStore struct {
	raftlog.Store

	gate *gate
}

func (s gatedStore) DeleteRange(low, high uint64) error {
	s.gate.pass()
	return s.Store.DeleteRange(low, high)
}

// While a follower writes a snapshot of its own, the leader sends it a newer one. The newer one stays the newest, on disk
// and in the index with which the replica votes. Until the own one has ended, the follower answers votes.
func TestAnOlderSnapshotNeverReplacesAnInstalledOne(t *testing.T) {
	t.Parallel()
	for name, published := range map[string]bool{"while it is written": false, "while it is published": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				hold := newGate()
				ms := newMembers(t, 3, nil)
				f := ms[2]
				f.files = gatedFiles{gate: hold, sync: published}
				a := startThree(t, ms)
				fill := func(ms []*member) {
					for i := range 2 * trailingEntriesUnknown {
						mustEventually(t, ms, a.next(), send(1, body(i)))
					}
				}
				transferTo(t, ms, ms[0])
				fill(ms)
				waitCaughtUp(t, ms, f)
				hold.closed.Store(true)
				written := make(chan error, 1)
				go func() { written <- f.group(1).Snapshot(t.Context()) }()
				<-hold.reached
				f.net.isolate(f.id, true)
				rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == f })
				fill(rest)
				for _, m := range rest {
					waitCaughtUp(t, rest, m)
					kit.OK(t, m.group(1).Snapshot(t.Context()))
				}
				f.net.isolate(f.id, false)
				snapshots := f.group(1).snapshots
				var stopped bool
				kit.Eventually(t, "the leader's snapshot arrives", func() bool {
					stopped = snapshots.DelaysInstall()
					newest, _ := snapshots.Newest()
					return stopped || newest != nil && newest.Remapped && f.group(1).applied.Load() >= newest.Index
				})
				if !stopped {
					t.Error("the snapshot was installed while raft was taking another")
				}
				votesInTime(t, rest[0], f)
				close(hold.open)
				if err := <-written; err != nil {
					t.Error(err)
				}
				waitCaughtUp(t, ms, f)
				newest, _ := snapshots.Newest()
				if !newest.Remapped {
					t.Errorf("the newest snapshot, up to %d, is the follower's own", newest.Index)
				}
				kit.Eventually(t, "raft votes by the newest snapshot", func() bool {
					last, err := strconv.ParseUint(f.group(1).instance.Load().raft.Stats()["last_snapshot_index"], 10, 64)
					return err == nil && last == newest.Index
				})
				f.stop()
				kit.OK(t, f.tryStart(1))
				sameEverywhere(t, ms)
			})
		})
	}
}

// A snapshot that arrives waits until raft has finished with the replica's own: not only until that is written, but
// until raft has noted its index, which would be the last one otherwise.
func TestAnInstallWaitsUntilRaftHasFinishedItsOwnSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hold := newGate()
		_, g, a := openSingle(t, func(c *Config) {
			c.Log.WrapStore(func(s raftlog.Store) raftlog.Store { return gatedStore{s, hold} })
		})
		for i := range 2 * trailingEntriesUnknown {
			must(t, g, a.next(), send(1, body(i)))
		}
		hold.closed.Store(true)
		written := make(chan error, 1)
		go func() { written <- g.Snapshot(t.Context()) }()
		<-hold.reached // raft compacts the log
		s := g.snapshots
		metas := kit.Must(s.List())(t)
		meta, sent, err := s.Open(metas[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		defer sent.Close()
		begun := make(chan error, 1)
		go func() {
			_, done, err := s.Receive(&raft.InstallSnapshotRequest{LastLogTerm: meta.Term, LastLogIndex: meta.Index + 1, Size: meta.Size}, sent)
			if err == nil {
				done()
			}
			begun <- err
		}()
		kit.Eventually(t, "the install has begun", s.DelaysInstall)
		select {
		case err := <-begun:
			t.Error("the install did not wait", err)
		default:
		}
		close(hold.open)
		if err := errors.Join(<-written, <-begun); err != nil {
			t.Error(err)
		}
	})
}

// failingFolder fails the sync of the folder of snapshots.
type failingFolder struct {
	disk.OS

	fails  *atomic.Bool
	before func() // called before a sync fails
}

func (f failingFolder) SyncFolder(path string) error {
	if f.fails.Load() && strings.HasSuffix(path, "snap") {
		f.before()
		return syscall.EIO
	}
	return f.OS.SyncFolder(path)
}

// It is not known whether a snapshot is on disk whose folder could not be synced: the replica stops, and opens
// again with all it has confirmed, whichever snapshot it finds. The segments of that snapshot stay, also those without a
// message that is still there.
func TestAFailedFolderSyncStopsTheReplica(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var fails atomic.Bool
		ms := newMembers(t, 1, func(c *Config) { c.Sizes.Segment = 4 << 10 })
		before := func() {}
		ms[0].files = failingFolder{fails: &fails, before: func() { before() }}
		m, g, a := startSingle(t, ms)
		must(t, g, a.next(), send(1, body(1)))
		kit.OK(t, g.Snapshot(t.Context()))
		for range 3 { // more than a segment, in segments that no earlier snapshot has
			must(t, g, a.next(), send(1, make([]byte, 3<<10)))
		}
		before = func() { // after the snapshot was frozen
			for _, c := range []fsm.Command{fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 100}, send(1, body(2))} {
				if got := ask(t, g, a.next(), c); got.Outcome != Done {
					t.Errorf("%T: %+v", c, got)
				}
			}
		}
		const want = 1
		fails.Store(true)
		if err := g.Snapshot(t.Context()); err == nil {
			t.Error("the snapshot was written")
		}
		if !errors.Is(g.Status().Halted, syscall.EIO) {
			t.Errorf("halted: %v", g.Status().Halted)
		}
		fails.Store(false)
		m.stop()
		m.start(1)
		kit.Eventually(t, "it has the message", func() bool { return len(image(t, m.group(1))) == want })
	})
}

// shortFolder has no file descriptor for some syncs of a folder.
type shortFolder struct {
	disk.OS

	folder string
	syncs  *atomic.Int32 // that will fail
}

func (f shortFolder) SyncFolder(path string) error {
	if strings.HasPrefix(filepath.Base(path), f.folder) && f.syncs.Add(-1) >= 0 {
		return syscall.EMFILE
	}
	return f.OS.SyncFolder(path)
}

// A snapshot for which there is no file descriptor fails, and is written later. Once it may be on disk, it waits for one.
func TestAShortageOfFilesStopsNoReplicaThatWritesASnapshot(t *testing.T) {
	t.Parallel()
	for folder, isWritten := range map[string]bool{"seg": false, "tmp": false, "snap": true} {
		t.Run(folder, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var syncs atomic.Int32
				ms := newMembers(t, 1, nil)
				ms[0].files = shortFolder{folder: folder, syncs: &syncs}
				_, g, a := startSingle(t, ms)
				must(t, g, a.next(), send(1, body(1)))
				syncs.Store(1)
				if err := g.Snapshot(t.Context()); (err == nil) != isWritten {
					t.Errorf("the snapshot: %v", err)
				}
				if syncs.Load() > 0 {
					t.Error("the folder was not synced")
				}
				must(t, g, a.next(), send(1, body(2)))
				if err := errors.Join(g.Snapshot(t.Context()), g.Status().Halted); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
