package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simnet"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// cloneHost and the number of a member are the host of a process on a copy of its data folder. Such a host has the same kind of log.
const cloneHost = 100

// image is a copy of the disk of a member that runs.
type image struct {
	member *member
	id     fsm.MemberID
	disk   *simfs.Disk
}

// copyDisk copies the disk of a member; nil while it does not run.
func (w *world) copyDisk(f simplan.Fault) *image {
	m := w.members[f.Member]
	p := m.running()
	if p == nil {
		return nil
	}
	m.mu.Lock()
	m.isCopied = true
	m.mu.Unlock()
	return &image{m, p.Node.ID(), m.store().Clone(rand.New(rand.NewPCG(uint64(f.At), uint64(f.Member))))}
}

// rollBack replaces the disk of a member by a copy from before its last start. The others have seen that start: they must refuse the
// process on the older disk, which stops. Its operator then replaces the member.
func (w *world) rollBack(f simplan.Fault) {
	old := w.copyDisk(f)
	if old == nil {
		return
	}
	m := old.member
	m.kill(false)
	m.ensureRunning()
	ctx, cancel := context.WithTimeout(context.Background(), f.Length)
	defer cancel()
	started := m.running()
	if started == nil || started.Node.Ready(ctx) != nil {
		w.log.Info("the start before a roll back was too slow", "member", m.number)
		return
	}
	<-ctx.Done() // all others have heard of the start
	m.kill(true)
	m.mu.Lock()
	m.disk = old.disk
	m.mu.Unlock()
	w.log.Info("disk of a member is an older one", "member", m.number)
	err := m.start()
	p := m.running()
	if errors.Is(err, datadir.ErrCopied) || p != nil && w.isFound(p, "the process on an older data folder") {
		w.happened(f.Kind)
	}
	w.replaceCopied(m, old.id)
}

// clone starts a second process on a copy of the data folder of a member. Both must stop; the operator replaces the member.
func (w *world) clone(f simplan.Fault) {
	copied := w.copyDisk(f)
	if copied == nil {
		return
	}
	original := copied.member.running()
	other := &world{partitions: w.partitions, replicas: w.replicas, network: w.network, log: w.log.With("process", "clone"), entries: newRecorder(w.events, nil), events: w.events}
	for _, m := range w.members {
		other.join = append(other.join, simnet.Address(m.number, gossipPort))
	}
	twin := other.add(copied.member.number, cloneHost+copied.member.number, newClock())
	twin.disk, twin.isCopied = copied.disk, true
	if err := twin.start(); err != nil {
		w.find("the process on a copied data folder does not start: %v", err)
		return
	}
	defer twin.kill(true)
	if original != nil && w.isFound(twin.running(), "the process on a copied data folder") && w.isFound(original, "the process whose data folder was copied") {
		w.happened(f.Kind)
	}
	w.replaceCopied(copied.member, copied.id)
}

// isFound waits until a process stops because another one has its identity. It is a finding if that takes long.
func (w *world) isFound(p *process, which string) bool {
	select {
	case <-p.Node.Copied():
		return true
	case <-p.Ended: // what it has found ends it
		select {
		case <-p.Node.Copied():
			return true
		default:
			return false
		}
	case <-time.After(simplan.CopiedWithin):
		w.find("%s of member %d runs on after %v", which, p.member.number, simplan.CopiedWithin)
		return false
	}
}

// replaceCopied gives the host of a member an empty disk, and removes the member.
func (w *world) replaceCopied(m *member, lost fsm.MemberID) {
	m.slot <- struct{}{}
	m.end(true)
	m.replaceDisk(uint64(time.Now().UnixNano()))
	m.mu.Lock()
	m.isCopied = false
	m.mu.Unlock()
	<-m.slot
	m.ensureRunning()
	w.replace(m, lost)
}
