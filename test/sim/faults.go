package sim

import (
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simnet"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// disturber carries out the faults of a plan. Faults overlap: a member that two faults have ended starts when the
// later one ends, and a link that two faults cut works again when both have ended.
type disturber struct {
	world  *world
	log    *slog.Logger
	faults []simplan.Fault // of the plan

	mu      sync.Mutex
	active  map[int]simplan.Fault // by position in the plan
	failed  map[int]int           // reads that had failed before, by position in the plan
	damaged map[int]fsm.MemberID  // whose bits were flipped, by position in the plan
	disks   map[int]*simfs.Disk   // on which faults of disks have begun: the host may have another one at their end
}

// run carries out all faults and returns when the last one has ended.
func (d *disturber) run(plan *simplan.Plan) {
	d.active, d.damaged = make(map[int]simplan.Fault), make(map[int]fsm.MemberID)
	d.failed, d.disks = make(map[int]int), make(map[int]*simfs.Disk)
	d.faults = plan.Faults
	begun := time.Now()
	var done sync.WaitGroup
	for i, f := range plan.Faults {
		done.Go(func() {
			sleep(time.Until(begun.Add(f.At)))
			d.begin(i, f)
			sleep(f.Length)
			d.end(i, f)
		})
	}
	done.Wait()
}

func (d *disturber) begin(i int, f simplan.Fault) {
	d.mu.Lock()
	d.active[i] = f
	d.setLinks()
	d.mu.Unlock()
	d.log.Info("fault began", "fault", f.String())
	w := d.world
	switch f.Kind { //nolint:exhaustive // the others are of links
	case simplan.Kill, simplan.PowerLoss:
		w.members[f.Member].kill(f.Kind == simplan.PowerLoss)
	case simplan.Blackout:
		for _, m := range w.members {
			m.kill(true)
		}
	case simplan.Restart:
		_ = w.members[f.Member].stop()
	case simplan.Upgrade:
		_ = w.members[f.Member].stop()
		w.members[f.Member].upgrade()
	case simplan.Suspend, simplan.Standstill:
		for _, m := range w.affected(f) {
			m.clock.suspend()
		}
	case simplan.FlipBits:
		if p := w.members[f.Member].running(); p != nil { // otherwise nobody can say which member it was
			d.damage(i, p.Node.ID())
			go d.flipBits(i, f, func(string) bool { return true })
		}
	case simplan.FlipJournal:
		go d.flipBits(i, f, func(path string) bool { return filepath.Base(filepath.Dir(path)) == partition.JournalFolder })
	case simplan.Reset:
		w.network.ResetStreams(f.Member, f.Other)
	case simplan.FullDisk, simplan.SlowDisk, simplan.CrawlDisk, simplan.HungDisk, simplan.Shortage, simplan.FailCall:
		beginAtDisk(d.disk(i, f), f)
	case simplan.Move:
		go w.movePartition(f)
	case simplan.Drain:
		go w.drain(w.members[f.Member], true)
	case simplan.Scale:
		go w.members[f.Member].retire(d.isAlone(i))
		if len(w.members) > 3 {
			go w.members[f.Other].retire(d.isAlone(i))
		}
	case simplan.Clock:
		if !w.isOnlyClock(w.members[f.Member]) {
			w.members[f.Member].clock.set(f.Amount, 0)
		}
	case simplan.Drift:
		if !w.isOnlyClock(w.members[f.Member]) {
			w.members[f.Member].clock.set(0, f.Amount.Seconds())
		}
	case simplan.LoseDisk:
		if lost := w.members[f.Member].loseDisk(); lost != "" {
			w.repairs.Go(func() { w.replace(w.members[f.Member], lost) })
		}
	default:
		d.beginRare(i, f)
	}
}

// beginRare begins a fault of the cluster as a whole, of reads or of folders.
func (d *disturber) beginRare(i int, f simplan.Fault) {
	w := d.world
	switch f.Kind { //nolint:exhaustive // begin has the others
	case simplan.Unreadable:
		d.beginUnreadable(i, f)
	case simplan.Clocks:
		for _, m := range w.affected(f) {
			m.clock.set(f.Amount, 0)
		}
		w.clocks.BeginStep(f.Amount)
		w.happened(f.Kind)
	case simplan.SlowDisks:
		for _, m := range w.affected(f) {
			m.store().SetDelay(f.Amount)
		}
	case simplan.Rename:
		w.repairs.Go(func() { w.renameAndKill(f) })
	case simplan.Backlog:
		w.repairs.Go(w.fill)
	case simplan.RollBack:
		w.repairs.Go(func() { w.rollBack(f) })
	case simplan.Clone:
		w.repairs.Go(func() { w.clone(f) })
	case simplan.Restore:
		w.restoreCluster(f)
	}
}

// beginAtDisk begins a fault of a disk.
func beginAtDisk(disk *simfs.Disk, f simplan.Fault) {
	switch f.Kind { //nolint:exhaustive // the others are not of disks
	case simplan.FullDisk:
		disk.SetFull(true)
	case simplan.SlowDisk, simplan.CrawlDisk:
		disk.SetDelay(f.Amount)
	case simplan.HungDisk:
		disk.SetHung(true)
	case simplan.Shortage:
		op, err := shortage(f)
		disk.FailNext(op, err)
	case simplan.FailCall:
		op := []simfs.Op{simfs.Sync, simfs.Log}[f.Amount]
		disk.FailNext(op, syscall.EIO)
	}
}

// endAtDisk ends a fault of a disk. It reports whether a shortage has made an operation fail.
func endAtDisk(disk *simfs.Disk, f simplan.Fault) (failed bool) {
	switch f.Kind { //nolint:exhaustive // the others are not of disks, or end with their process
	case simplan.FullDisk:
		disk.SetFull(false)
	case simplan.SlowDisk, simplan.CrawlDisk:
		disk.SetDelay(0)
	case simplan.HungDisk:
		disk.SetHung(false)
	case simplan.Shortage:
		op, _ := shortage(f)
		return !disk.FailNext(op, nil)
	}
	return false
}

// shortage returns the operation that fails, and its error.
func shortage(f simplan.Fault) (simfs.Op, error) {
	switch int(f.Amount) {
	case 0:
		return simfs.Open, simfs.PathError(simfs.CallOpen, dataFolder, syscall.EMFILE)
	case 1:
		return simfs.Write, simfs.PathError(simfs.CallWrite, dataFolder, syscall.ENOSPC)
	default:
		return simfs.Log, simfs.PathError(simfs.CallLogStore, dataFolder, syscall.ENOSPC)
	}
}

// isOnlyClock reports whether the clock of a member is, or may be, the only one that counts, because no other member has
// joined the restored cluster yet: then it is right, whatever it shows.
func (w *world) isOnlyClock(m *member) bool {
	if p := m.running(); p != nil {
		return p.Node.Stats(0).Clocks.Members <= 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restored != nil
}

// isAlone reports whether nothing else disturbs the cluster from shortly before a fault begins until an operation that begins
// with it must have ended.
func (d *disturber) isAlone(i int) bool {
	from, to := d.faults[i].At-serveWithin, d.faults[i].At+operateWithin
	return !slices.ContainsFunc(slices.Concat(d.faults[:i], d.faults[i+1:]), func(f simplan.Fault) bool { return f.At < to && f.At+f.Length > from })
}

func (d *disturber) end(i int, f simplan.Fault) {
	d.mu.Lock()
	delete(d.active, i)
	d.setLinks()
	isDown := make([]bool, len(d.world.members))
	for _, other := range d.active {
		switch other.Kind { //nolint:exhaustive // the others end no process
		case simplan.Kill, simplan.PowerLoss, simplan.Restart, simplan.Upgrade, simplan.LoseDisk:
			isDown[other.Member] = true
		case simplan.Blackout:
			for m := range isDown {
				isDown[m] = true
			}
		}
	}
	d.mu.Unlock()
	start := func(member int) {
		if !isDown[member] {
			d.world.members[member].ensureRunning()
		}
	}
	d.log.Info("fault ended", "fault", f.String())
	switch f.Kind { //nolint:exhaustive // the others end no process
	case simplan.Suspend, simplan.Standstill:
		for _, m := range d.world.affected(f) {
			m.clock.resume()
		}
		d.world.resumed()
	case simplan.FlipBits:
		if m, lost := d.world.members[f.Member], d.damage(i, ""); lost != "" {
			m.kill(true)
			m.replaceDisk(uint64(time.Now().UnixNano()))
			d.world.repairs.Go(func() { d.world.replace(m, lost) })
		}
		start(f.Member)
	case simplan.FlipJournal:
		d.world.members[f.Member].kill(true)
		start(f.Member)
	case simplan.Unreadable:
		d.endUnreadable(i, f)
		start(f.Member)
	case simplan.Clock, simplan.Drift, simplan.Clocks:
		for _, m := range d.world.affected(f) {
			m.clock.set(0, 0)
		}
		if f.Kind == simplan.Clocks {
			d.world.clocks.EndStep()
		}
	case simplan.FullDisk, simplan.SlowDisk, simplan.CrawlDisk, simplan.HungDisk, simplan.Shortage:
		if endAtDisk(d.disk(i, f), f) {
			d.world.happened(f.Kind)
		}
	case simplan.SlowDisks:
		for _, m := range d.world.affected(f) {
			m.store().SetDelay(0)
		}
	case simplan.FailCall: // a replica that has stopped is opened again by the next process
		d.world.members[f.Member].store().FailNext(simfs.Sync, nil)
		d.world.members[f.Member].store().FailNext(simfs.Log, nil)
		d.world.members[f.Member].kill(false)
		start(f.Member)
	case simplan.Drain:
		d.world.drain(d.world.members[f.Member], false)
	case simplan.Kill, simplan.PowerLoss, simplan.Restart, simplan.Upgrade, simplan.Blackout, simplan.Scale, simplan.LoseDisk:
		for m := range isDown {
			start(m)
		}
	}
}

// affected returns the members that a fault concerns.
func (w *world) affected(f simplan.Fault) []*member {
	switch f.Kind { //nolint:exhaustive // the others have one member
	case simplan.Standstill, simplan.Clocks, simplan.SlowDisks:
		return w.members
	}
	return w.members[f.Member : f.Member+1]
}

// disk returns the disk that the member of a fault had when the fault began.
func (d *disturber) disk(i int, f simplan.Fault) *simfs.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.disks[i] == nil {
		d.disks[i] = d.world.members[f.Member].store()
	}
	return d.disks[i]
}

// damage notes which member a fault damages, unless that is "", and returns the one that was noted before.
func (d *disturber) damage(i int, member fsm.MemberID) fsm.MemberID {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.damaged[i]
	d.damaged[i] = member
	return before
}

// flipBits changes bits of some files of a member every now and then while the fault lasts. raft.db is left as it is: it has
// checksums that only its real store knows.
func (d *disturber) flipBits(i int, f simplan.Fault, some func(path string) bool) {
	random := rand.New(rand.NewPCG(uint64(f.At), uint64(f.Length)))
	for isActive := true; isActive; {
		disk := d.world.members[f.Member].store()
		files := slices.DeleteFunc(disk.Files(), func(path string) bool { return disk.IsLog(path) || !some(path) })
		if len(files) > 0 {
			path := files[random.IntN(len(files))]
			d.log.Info("bit flipped", "member", f.Member, "file", path, "changed", disk.FlipBit(path))
		}
		sleep(flipEvery)
		d.mu.Lock()
		_, isActive = d.active[i]
		d.mu.Unlock()
	}
}

// setLinks cuts, delays and slows down what the active faults cut, delay and slow down.
func (d *disturber) setLinks() {
	damages := make(map[simnet.Link]bool)
	cuts, delays, paces := make(map[simnet.Link]bool), make(map[simnet.Link]time.Duration), make(map[simnet.Link]time.Duration)
	n := len(d.world.members)
	for _, f := range d.active {
		for from := range n {
			for to := range n {
				link := simnet.Link{From: from, To: to}
				switch {
				case from == to:
				case f.Kind == simplan.Delay && (from == f.Member || to == f.Member):
					delays[link] = max(delays[link], f.Amount)
				case f.Kind == simplan.Narrow && (from == f.Member || to == f.Member):
					paces[link] = max(paces[link], f.Amount)
				case f.Kind == simplan.Garble && (from == f.Member || to == f.Member):
					damages[link] = true
				case isCut(&f, link, n):
					cuts[link] = true
				}
			}
		}
	}
	d.world.network.SetDamages(damages)
	d.world.network.SetCuts(cuts)
	d.world.network.SetDelays(delays)
	d.world.network.SetPaces(paces)
}

// flipEvery is the time between two changes of bits.
const flipEvery = time.Second

// isCut reports whether a fault cuts a link between two of n members.
func isCut(f *simplan.Fault, l simnet.Link, n int) bool {
	switch f.Kind { //nolint:exhaustive // the others cut nothing
	case simplan.Standstill:
		return true
	case simplan.Isolate, simplan.Suspend:
		return l.From == f.Member || l.To == f.Member
	case simplan.Mute:
		return l.From == f.Member
	case simplan.Deafen:
		return l.To == f.Member
	case simplan.CutOne:
		return l.From == f.Member && l.To == f.Other || l.From == f.Other && l.To == f.Member
	case simplan.Halves:
		half := func(m int) bool { return (m-f.Member+n)%n < (n+1)/2 }
		return half(l.From) != half(l.To)
	case simplan.Ring:
		return l.To != (l.From+1)%n
	}
	return false
}
