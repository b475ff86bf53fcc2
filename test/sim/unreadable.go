package sim

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// beginUnreadable makes one file of a member unreadable: of the journal if the amount is even, any but the identity of the member and the
// file of the log if it is odd. From 2 on the process is killed too, and finds the file when it starts again.
func (d *disturber) beginUnreadable(i int, f simplan.Fault) {
	random := rand.New(rand.NewPCG(uint64(f.At), uint64(f.Length)))
	m := d.world.members[f.Member]
	disk := m.store()
	files := slices.DeleteFunc(disk.Files(), func(path string) bool {
		inJournal := filepath.Base(filepath.Dir(path)) == partition.JournalFolder
		return disk.IsLog(path) || strings.HasPrefix(filepath.Base(path), "member.json") || f.Amount%2 == 0 && !inJournal
	})
	if len(files) == 0 {
		return
	}
	bad := files[random.IntN(len(files))]
	d.world.log.Info("file cannot be read", "member", f.Member, "file", bad)
	before := disk.SetUnreadable(func(path string) bool { return path == bad })
	d.mu.Lock()
	d.failed[i] = before
	d.mu.Unlock()
	if f.Amount >= simplan.BadFiles/2 && m.running() != nil {
		m.kill(false)
		go m.ensureRunning()
	}
}

// endUnreadable makes the file readable again. What the failed reads have stopped is opened by the next process.
func (d *disturber) endUnreadable(i int, f simplan.Fault) {
	m := d.world.members[f.Member]
	hung := false // by another fault: that may take the member down
	d.mu.Lock()
	before := d.failed[i]
	for _, other := range d.active {
		hung = hung || other.Kind == simplan.HungDisk && other.Member == f.Member
	}
	d.mu.Unlock()
	if m.store().SetUnreadable(nil) > before {
		d.world.happened(f.Kind)
	}
	if p := m.running(); p != nil && !hung {
		for _, check := range p.Node.Liveness() {
			if !check.OK {
				d.world.find("a file that could not be read took member %d down: %s: %s", f.Member, check.Name, check.Text)
			}
		}
	}
	m.kill(false)
}
