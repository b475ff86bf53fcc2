package partition

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// badSector is a disk on which one sector of the files of a folder cannot be read while bad is set.
type badSector struct {
	disk.FS

	folder string
	at     int64
	bad    atomic.Bool
	failed atomic.Int64
}

type badSectorFile struct {
	disk.File

	on *badSector
}

func (d *badSector) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	f, err := d.FS.OpenFile(path, flag, mode)
	if err == nil && strings.HasPrefix(filepath.Base(filepath.Dir(path)), d.folder) {
		return badSectorFile{f, d}, nil
	}
	return f, err
}

func (f badSectorFile) ReadAt(b []byte, at int64) (int, error) {
	if f.on.bad.Load() && at <= f.on.at && f.on.at < at+int64(len(b)) {
		f.on.failed.Add(1)
		return 0, &fs.PathError{Op: "read", Path: "a file", Err: syscall.EIO}
	}
	return f.File.ReadAt(b, at)
}

func (f badSectorFile) Read(b []byte) (int, error) {
	if f.on.bad.Load() {
		f.on.failed.Add(1)
		return 0, &fs.PathError{Op: "read", Path: "a file", Err: syscall.EIO}
	}
	return f.File.Read(b)
}

// unreadable returns three members, the second of which has a disk with a bad sector.
func unreadable(t *testing.T, folder string, at int64) ([]*member, *badSector, *asker) {
	t.Helper()
	ms := newMembers(t, 3, nil)
	d := &badSector{FS: disk.OS{}, folder: folder, at: at}
	ms[1].files, ms[1].kind = d, JournalLog
	return ms, d, startThree(t, ms)
}

// A sector of the journal that cannot be read is damage: the log opens, and only the replicas whose entries were there do not.
func TestUnreadableSectorOfTheJournalIsDamage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, d, a := unreadable(t, "journal", 4096)
		for i := range 20 {
			mustEventually(t, ms, a.next(), send(1, append(body(i), make([]byte, 1000)...)))
		}
		waitCaughtUp(t, ms, ms[1])
		ms[1].stop()
		d.bad.Store(true)
		if err := ms[1].tryStart(); err != nil {
			t.Fatalf("the log does not open: %v", err)
		}
		g, err := Open(t.Context(), ms[1].config(1))
		if err == nil {
			err = g.Close(t.Context())
			t.Error("a replica without some of its entries was opened", err)
		}
		if !errors.Is(err, ErrLogDamaged) || d.failed.Load() == 0 {
			t.Errorf("opened: %v", err)
		}
	})
}

// The same sector, found while the member runs, halts the replica, and not the process.
func TestUnreadableEntryHaltsItsReplica(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, d, a := unreadable(t, "journal", 64<<10)
		for i := range 300 { // the first entries leave the cache, which has the newest 2 MiB
			mustEventually(t, ms, a.next(), send(1, append(body(i), make([]byte, 10_000)...)))
		}
		waitCaughtUp(t, ms, ms[1])
		d.bad.Store(true)
		ms[1].group(1).requestReopen("a test") // raft reads the log again
		kit.Eventually(t, "the replica halts", func() bool { return errors.Is(ms[1].group(1).Status().Halted, ErrLogDamaged) })
		rest := []*member{ms[0], ms[2]}
		mustEventually(t, rest, a.next(), send(1, body(1)))
	})
}

// A body, or a part of a snapshot, that cannot be read is damaged.
func TestUnreadableBodiesAndSnapshotsAreDamage(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"seg", "1-"} { // the second has the files of the snapshot
		t.Run(folder, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ms := newMembers(t, 1, nil)
				d := &badSector{FS: disk.OS{}, folder: folder, at: 100}
				ms[0].files = d
				m, g, a := startSingle(t, ms)
				must(t, g, a.next(), send(1, make([]byte, 1000)))
				kit.OK(t, g.Snapshot(t.Context()))
				m.stop()
				if folder != "seg" {
					d.folder = strings.SplitAfter(filepath.Base(snapshotFolders(t, m)[0]), "-")[0]
					d.bad.Store(true)
					if err := m.tryStart(1); !errors.Is(err, disk.ErrDamaged) || d.failed.Load() < 2 {
						t.Errorf("opened after %d failures: %v", d.failed.Load(), err)
					}
					return
				}
				m.start(1)
				_, g = leader(t, ms, 1)
				d.bad.Store(true)
				r := &asker{origin: 7, receiver: 1}
				g.Submit(fsm.AppendCommand(nil, r.next(), lockOf(1, 1)), func(Answer) {})
				kit.Eventually(t, "the replica halts", func() bool { return errors.Is(g.Status().Halted, disk.ErrDamaged) })
				if d.failed.Load() < 2 {
					t.Error("it was read once only")
				}
			})
		})
	}
}

// snapshotFolders returns the folders of the snapshots of a member's group.
func snapshotFolders(t *testing.T, m *member) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(replicaDir(m), "snap", "*"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	return found
}
