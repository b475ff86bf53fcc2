package partition

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// fullDisk is a disk without space for new segments of bodies while full is set.
type fullDisk struct {
	disk.FS

	full    atomic.Bool
	refused atomic.Int64
}

func (d *fullDisk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if d.full.Load() && flag&os.O_CREATE != 0 && filepath.Base(filepath.Dir(path)) == "seg" {
		d.refused.Add(1)
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
	}
	return d.FS.OpenFile(path, flag, mode)
}

// TestGroupIsReadWhileItWaitsForSpace: the first message after a start needs a segment. While the disk has no space for it, the group
// waits, and whoever reads the group does not wait with it.
func TestGroupIsReadWhileItWaitsForSpace(t *testing.T) {
	t.Parallel()
	ms := newMembers(t, 3, nil)
	d := &fullDisk{FS: disk.OS{}}
	ms[1].files = d
	a := startThree(t, ms)
	d.full.Store(true)
	h := a.next()
	mustEventually(t, ms, h, send(1, body(1)))
	kit.Eventually(t, "the follower has no space", func() bool { return d.refused.Load() > 0 })
	read := make(chan struct{})
	go func() {
		ms[1].group(1).View(func(Machine) {})
		close(read)
	}()
	kit.Eventually(t, "the follower is read", func() bool {
		select {
		case <-read:
			return true
		default:
			return false
		}
	})
	if !d.full.Load() || ms[1].group(1).Status().Applied == ms[0].group(1).Status().Applied {
		t.Error("the follower did not wait")
	}
	d.full.Store(false)
	waitCaughtUp(t, ms[:1], ms[1])
	sameEverywhere(t, ms)
}
