package partition

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// fullDisk is a disk on which no segments of bodies can be created while full is set.
type fullDisk struct {
	disk.FS

	err     error
	full    atomic.Bool
	refused atomic.Int64
}

func (d *fullDisk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if d.full.Load() && flag&os.O_CREATE != 0 && filepath.Base(filepath.Dir(path)) == "seg" {
		d.refused.Add(1)
		return nil, &fs.PathError{Op: "open", Path: path, Err: d.err}
	}
	return d.FS.OpenFile(path, flag, mode)
}

// TestGroupIsReadWhileItWaitsForSpace: the first message after a start needs a segment. While the disk has no space for it, or
// the process no file descriptor, the group waits, and whoever reads the group does not wait with it.
func TestGroupIsReadWhileItWaitsForSpace(t *testing.T) {
	t.Parallel()
	for _, err := range []error{syscall.ENOSPC, syscall.EMFILE} {
		t.Run(err.Error(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				testGroupIsReadWhileItWaits(t, err)
			})
		})
	}
}

func testGroupIsReadWhileItWaits(t *testing.T, shortage error) {
	t.Helper()
	ms := newMembers(t, 3, nil)
	d := &fullDisk{FS: disk.OS{}, err: shortage}
	ms[1].files = d
	a := startThree(t, ms)
	transferTo(t, ms, ms[0])
	d.full.Store(true)
	h := a.next()
	mustEventually(t, ms, h, send(1, body(1)))
	kit.Eventually(t, "the follower has no space", func() bool { return d.refused.Load() > 0 })
	isRead(t, ms[1].group(1))
	if !d.full.Load() || ms[1].group(1).Status().Applied == ms[0].group(1).Status().Applied {
		t.Error("the follower did not wait")
	}
	d.full.Store(false)
	waitCaughtUp(t, ms[:1], ms[1])
	sameEverywhere(t, ms)
}

// isRead checks that a reader of the machine does not wait.
func isRead(t *testing.T, g *Group) {
	t.Helper()
	read := make(chan struct{})
	go func() {
		g.View(func(Machine) {})
		close(read)
	}()
	kit.Eventually(t, "the machine is read", func() bool {
		select {
		case <-read:
			return true
		default:
			return false
		}
	})
}

// While neither space nor a file descriptor is left for a segment, compaction is given up, and commands are performed that
// store no message: some need no segment, and what the others store, such as the state of a session, stays in memory until
// there is one. Nobody waits with the lock of the machine: a wait for it would stop virtual time, so time is real.
func TestNoCommandWaitsForASegmentWithTheLock(t *testing.T) {
	t.Parallel()
	for _, shortage := range []error{syscall.ENOSPC, syscall.EMFILE} {
		t.Run(shortage.Error(), func(t *testing.T) {
			t.Parallel()
			const segmentBytes = 8 << 10
			ms := newMembers(t, 1, func(c *Config) { c.Sizes.Segment = segmentBytes })
			d := &fullDisk{FS: disk.OS{}, err: shortage}
			ms[0].files = d
			m, g, a := startSingle(t, ms)
			for range 24 {
				must(t, g, a.next(), send(1, bytes.Repeat([]byte("x"), 1000)))
			}
			r := &asker{origin: 7, receiver: 1}
			got := lock(t, g, r.next(), lockOf(1, 24), time.Minute)
			var settle []fsm.Settlement
			for i, x := range got.Result.Deliveries {
				if i%7 != 3 { // one of each segment stays
					settle = append(settle, fsm.Settlement{Lock: x.Lock, Verb: fsm.Complete})
				}
			}
			must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: settle})
			kit.OK(t, g.Snapshot(t.Context()))
			m.stop()
			m.start(1)
			_, g = leader(t, ms, 1)
			sparse := len(g.bodies.Sparse())
			if sparse == 0 || g.bodies.HasSegment() {
				t.Fatalf("%d sparse segments, an active one: %v", sparse, g.bodies.HasSegment())
			}
			d.full.Store(true)
			compacted := make(chan struct{})
			go func() {
				g.compact(t.Context()) // as after each snapshot
				close(compacted)
			}()
			kit.Eventually(t, "compaction is given up", func() bool {
				select {
				case <-compacted:
					return d.refused.Load() > 0
				default:
					return false
				}
			})
			isRead(t, g)
			stays := got.Result.Deliveries[3].Lock
			must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: stays, Verb: fsm.DeadLetter, Reason: "kept in memory"}}})
			isRead(t, g)
			if err := g.Snapshot(t.Context()); err == nil {
				t.Error("a snapshot was written without the body that is in memory")
			}
			must(t, g, a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1})
			d.full.Store(false)
			kit.OK(t, g.Snapshot(t.Context()))
			g.compact(t.Context())
			if n := len(g.bodies.Sparse()); n != 0 {
				t.Errorf("%d segments are still sparse", n)
			}
			if err := g.Status().Halted; err != nil {
				t.Error(err)
			}
			want := image(t, g)
			m.stop()
			m.start(1)
			kit.Eventually(t, "it has the same messages", func() bool { return len(image(t, m.group(1))) == len(want) })
		})
	}
}

// A replica that has no file descriptor for the next segment of bodies goes on with the one it has, and creates the next one later.
func TestSegmentGrowsWhileFilesAreShort(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const segmentBytes = 4 << 10
		ms := newMembers(t, 3, func(c *Config) { c.Sizes.Segment = segmentBytes })
		d := &fullDisk{FS: disk.OS{}, err: syscall.ENFILE}
		ms[1].files = d
		a := startThree(t, ms)
		fill := func() {
			for range 6 {
				mustEventually(t, ms, a.next(), send(1, bytes.Repeat([]byte("x"), segmentBytes/3)))
			}
			waitCaughtUp(t, ms, ms[1])
		}
		fill()
		before := ms[1].group(1).bodies.SegmentCount()
		d.full.Store(true)
		fill()
		if n := ms[1].group(1).bodies.SegmentCount(); n != before || d.refused.Load() == 0 {
			t.Errorf("%d segments, %d before, refused %d times", n, before, d.refused.Load())
		}
		d.full.Store(false)
		fill()
		if n := ms[1].group(1).bodies.SegmentCount(); n <= before {
			t.Errorf("%d segments, as before", n)
		}
		sameEverywhere(t, ms)
	})
}

// fewReads is a disk on which files of snapshots cannot be opened to be read while short is set.
type fewReads struct {
	disk.FS

	name    string
	short   atomic.Bool
	refused atomic.Int64
}

func (d *fewReads) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if d.short.Load() && flag == os.O_RDONLY && filepath.Base(path) == d.name {
		d.refused.Add(1)
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	}
	return d.FS.OpenFile(path, flag, mode)
}

func (d *fewReads) ReadFile(path string) ([]byte, error) {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// A replica that cannot open the files of a received snapshot for lack of file descriptors waits for them, and loads it then.
func TestSnapshotIsLoadedAfterAShortageOfFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"image", "refs"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ms := newMembers(t, 3, func(c *Config) { c.Sizes.Trailing = 0 })
				d := &fewReads{FS: disk.OS{}, name: name}
				away, rest := ms[2], ms[:2]
				away.files = d
				a := startThree(t, ms)
				away.stop()
				for i := range 200 {
					mustEventually(t, rest, a.next(), send(1, body(i)))
				}
				compactLogs(t, rest)
				d.short.Store(true)
				away.start(1)
				kit.Eventually(t, "it tries to load the snapshot twice", func() bool { return d.refused.Load() > 1 })
				isRead(t, away.group(1))
				d.short.Store(false)
				waitCaughtUp(t, ms, away)
				if err := away.group(1).Status().Halted; err != nil {
					t.Error(err)
				}
				sameEverywhere(t, ms)
			})
		})
	}
}
