package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

const operateWithin = time.Minute // one move, drain or removal; afterwards the operator gives up

// replaceWithin is how long an operator tries to remove a member that lost its disk: until the faults of most plans have ended.
const replaceWithin = 10 * operateWithin

// store returns the disk of a member.
func (m *member) store() *simfs.Disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk
}

// logStore returns where the log of a member keeps its entries: one of three to five members has them in bolt.
func logStore(name int) partition.LogKind {
	kind := partition.JournalLog
	if simplan.KeepsBolt(name) {
		kind = partition.BoltLog
	}
	return cmp.Or(partition.LogKind(os.Getenv("PEEKLOCK_LOG_STORE")), kind)
}

// replaceDisk gives the member an empty disk: its next process is a new member.
func (m *member) replaceDisk(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk = simfs.New(rand.New(rand.NewPCG(seed, uint64(m.number)+0x6469736b)))
	if m.world.calls != nil {
		m.disk.Intercept(m.world.calls.intercept(m))
	}
}

// upgrade makes the next process of the member one of the next release.
func (m *member) upgrade() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isOld = false
}

// awaitUpgraded waits until the members know that all of them can read the newest formats, unless one has the former release.
func (w *world) awaitUpgraded(ctx context.Context) error {
	for _, m := range w.members {
		m.mu.Lock()
		isOld := m.isOld
		m.mu.Unlock()
		if isOld {
			return nil
		}
	}
	for _, m := range w.members {
		for p := m.running(); p != nil && p.Node.FormatLevel() < fsm.FormatLevel; sleep(startRetry) {
			if ctx.Err() != nil {
				return fmt.Errorf("member %d has level %d, although all members can read %d", m.number, p.Node.FormatLevel(), fsm.FormatLevel)
			}
		}
	}
	return nil
}

// observe counts the calls of the member's disk.
func (m *member) observe() { m.store().Intercept(m.world.calls.intercept(m)) }

// anyOther returns a process that runs, of another member if there is one; nil while none runs.
func (w *world) anyOther(m *member) (found *process) {
	for _, other := range w.members {
		if p := other.running(); p != nil && (found == nil || other != m) {
			found = p
		}
	}
	return found
}

// retire removes the member from the cluster as an operator who scales it down does, and stops it. It keeps running
// when the removal fails, which is a finding if nothing else disturbs the cluster.
func (m *member) retire(isAlone bool) {
	p := m.running()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), operateWithin)
	defer cancel()
	if err := p.Node.Operator().RemoveMember(ctx, p.Node.ID()); err != nil {
		m.world.log.Warn("failed to remove a member", "number", m.number, "error", err)
		if isAlone {
			m.world.find("the removal of member %d failed although nothing else happened: %v", m.number, err)
		}
	}
}

// followRemoval stops a process whose member was removed, and gives its host an empty disk.
func (m *member) followRemoval(p *process) {
	select {
	case <-p.Ended:
		return
	case <-p.Node.Removed():
	}
	if m.running() == p {
		m.world.log.Info("host of a removed member gets an empty disk", "number", m.number)
		_ = m.stop()
		m.replaceDisk(uint64(time.Now().UnixNano()))
	}
}

// followStart starts the member again, as a supervisor does, when its process ends because it cannot become ready.
func (m *member) followStart(p *process) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- p.Node.Ready(ctx) }()
	select {
	case <-p.Ended:
	case err := <-failed:
		if err != nil && !isRemoved(err) && m.running() == p {
			m.world.log.Warn("process of a member ends", "number", m.number, "error", err)
			if m.world.calls != nil {
				m.world.calls.addNote("ended: " + err.Error())
			}
			_ = m.stop()
			m.ensureRunning()
		}
	}
}

// movePartition moves a partition to the members that follow a number, if enough of them run.
func (w *world) movePartition(f simplan.Fault) {
	p := w.anyOther(nil)
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), operateWithin)
	defer cancel()
	var to []fsm.MemberID
	for i := range w.members {
		if other := w.members[(f.Member+i)%len(w.members)].running(); other != nil && len(to) < w.replicas {
			to = append(to, other.Node.ID())
		}
	}
	if len(to) < w.replicas {
		return
	}
	id := fsm.PartitionID(1 + f.Other%w.partitions)
	if err := p.Node.Operator().Move(ctx, id, to); err != nil {
		w.log.Warn("failed to move a partition", "partition", id, "error", err)
	}
}

// drain drains a member, or ends that.
func (w *world) drain(m *member, begin bool) {
	p, by := m.running(), w.anyOther(m)
	if p == nil || by == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), operateWithin)
	defer cancel()
	operate := by.Node.Operator().Undrain
	if begin {
		operate = by.Node.Operator().Drain
	}
	if err := operate(ctx, p.Node.ID()); err != nil {
		w.log.Warn("failed to drain or undrain a member", "number", m.number, "error", err)
	}
}

// clocksAgree reports whether every member that runs knows a time that a quorum of the members confirms. It does not while it
// reaches too few of them, or too slowly, but it may lead partitions.
func (w *world) clocksAgree() bool {
	for _, m := range w.members {
		if p := m.running(); p != nil && !p.Node.Stats(0).Clocks.Agreed {
			return false
		}
	}
	return true
}

// undrainAll undrains all members, as an operator does in the end; it retries until it succeeds.
func (w *world) undrainAll(ctx context.Context) {
	for _, m := range w.members {
		for {
			p := m.running()
			if p == nil || p.Node.Operator().Undrain(ctx, p.Node.ID()) == nil || ctx.Err() != nil {
				break
			}
			sleep(startRetry)
		}
	}
}

// isRemoved reports whether a start failed because the member was removed.
func isRemoved(err error) bool { return errors.Is(err, datadir.ErrRemoved) }
