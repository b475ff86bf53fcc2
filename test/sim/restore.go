package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simnet"
	"github.com/peeklock/peeklock/test/sim/simplan"
	"github.com/peeklock/peeklock/topology"
)

// The times of a restore.
const (
	copyWithin    = 2 * time.Minute  // of all partitions; afterwards the operator gives up
	copyPauseMax  = time.Second      // between two partitions
	restoreWithin = 2 * time.Minute  // attempts on a disk that is full or fails
	formerRun     = 30 * time.Second // how long the former members run beside the restored cluster
	spreadWithin  = time.Minute      // attempts to spread partitions over the members
	lookEvery     = 3 * time.Second  // at the members that they know
	spreadEvery   = 3 * time.Second

	backlogCopy = time.Minute // that a copy of a backlog takes at least, to count

	spreadsUnchanged = 5 // attempts that find nothing to move, until the members have their share
)

// copies are the copies of the partitions of a cluster, and when each was taken.
type copies struct {
	bytes map[fsm.PartitionID][]byte
	cuts  map[fsm.PartitionID]judge.Cut
}

// restoreCluster copies the cluster, ends all members for good, and starts another cluster from the copy. The former
// members come back at other hosts, find the restored cluster, and must stay apart from it.
func (w *world) restoreCluster(f simplan.Fault) {
	taken, err := w.copyAll(rand.New(rand.NewPCG(uint64(f.At), uint64(f.Amount))))
	if err != nil {
		w.log.Warn("failed to copy the cluster", "error", err)
		return
	}
	sleep(f.Amount)
	lost := w.lose()
	w.mu.Lock()
	w.restored = &judge.Restoration{At: time.Now(), Cuts: taken.cuts}
	w.mu.Unlock()
	w.forget()
	w.log.Info("all members are lost")
	w.former, w.entries = w.entries, newRecorder(w.events, taken.bytes)
	w.members[f.Member].clock.set(0, 0) // nothing can tell a single member that its clock is wrong
	err = w.restoreAt(w.members[f.Member], taken)
	w.expect = 0
	for _, m := range w.members {
		<-m.slot
	}
	if err != nil {
		w.find("restore: %v", err)
		return
	}
	w.members[f.Member].ensureRunning()
	w.startRest()
	w.repairs.Go(w.spread)
	w.repairs.Go(func() { w.runFormer(lost) })
}

// copyAll copies the partitions, in any order and with pauses, and then the catalog.
func (w *world) copyAll(random *rand.Rand) (*copies, error) {
	ctx, cancel := context.WithTimeout(context.Background(), copyWithin)
	defer cancel()
	c := &copies{bytes: make(map[fsm.PartitionID][]byte), cuts: make(map[fsm.PartitionID]judge.Cut)}
	for _, i := range random.Perm(w.partitions) {
		if err := c.copyOne(ctx, w, fsm.PartitionID(i+1)); err != nil {
			return nil, err
		}
		sleep(time.Duration(random.Int64N(int64(copyPauseMax))))
	}
	return c, c.copyOne(ctx, w, fsm.CatalogPartition)
}

// copyOne copies a partition, and tries again while that fails.
func (c *copies) copyOne(ctx context.Context, w *world, id fsm.PartitionID) error {
	for {
		var copied bytes.Buffer
		begun, err := time.Now(), errors.New("no member runs")
		if p := w.anyOther(nil); p != nil {
			err = p.Node.Operator().Backup(ctx, id, &copied)
		}
		if err == nil {
			_, err = partition.CheckBackup(bytes.NewReader(copied.Bytes()))
		}
		if err == nil {
			c.bytes[id], c.cuts[id] = copied.Bytes(), judge.Cut{Begun: begun, Ended: time.Now()}
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("copy partition %d: %w", id, err)
		}
		sleep(startRetry)
	}
}

// lose ends the processes of all members as a loss of power does, and gives the hosts empty disks. It returns the
// former disks. Until the slots of the members are freed, no process starts.
func (w *world) lose() (lost []*simfs.Disk) {
	for _, m := range w.members {
		m.slot <- struct{}{}
	}
	for _, m := range w.members {
		m.end(true)
		lost = append(lost, m.store())
		m.replaceDisk(uint64(time.Now().UnixNano()))
	}
	sleep(time.Millisecond) // what the clients have heard is in their history
	return lost
}

// restoreAt makes the data folder of a member from the copies, and tries again while that fails.
func (w *world) restoreAt(m *member, from *copies) error {
	ctx, cancel := context.WithTimeout(context.Background(), restoreWithin)
	defer cancel()
	for {
		files := m.store().Mount()
		err := backup.Restore(ctx, backup.RestoreConfig{
			Dir: dataFolder, LogStore: m.log, FS: files, OpenLogStore: w.entries.open(m.name, files.OpenLog), Logger: w.log.With("name", "restore"),
			Backup: func(id fsm.PartitionID) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(from.bytes[id])), nil
			},
		})
		m.store().Kill()
		if err == nil || ctx.Err() != nil {
			return err
		}
		w.log.Warn("failed to restore", "error", err)
		sleep(startRetry)
		m.replaceDisk(uint64(time.Now().UnixNano()))
	}
}

// spread gives the members that have joined a restored cluster their share, as its operator does.
func (w *world) spread() {
	ctx, cancel := context.WithTimeout(context.Background(), spreadWithin)
	defer cancel()
	for unchanged := 0; unchanged < spreadsUnchanged && ctx.Err() == nil; unchanged++ {
		sleep(spreadEvery)
		p := w.anyOther(nil)
		if p == nil {
			continue
		}
		plan, err := p.Node.Operator().PlanRebalance(ctx)
		if err == nil {
			err = p.Node.Operator().Rebalance(ctx, plan)
		}
		if err != nil {
			w.log.Warn("failed to rebalance", "error", err)
		}
		if err != nil || len(plan) > 0 {
			unchanged = 0
		}
	}
}

// runFormer runs the former members for a while, at hosts of their own, with the addresses of the restored cluster.
func (w *world) runFormer(disks []*simfs.Disk) {
	former := &world{partitions: w.partitions, replicas: w.replicas, expect: len(w.members), network: w.network, log: w.log.With("cluster", "former"), entries: newRecorder(w.events, nil), events: w.events}
	for i, m := range w.members {
		former.join = append(former.join, simnet.Address(m.number, gossipPort))
		if len(disks[i].Files()) == 0 {
			continue // it was removed before the restore and not started again: without data it could join either
		}
		old := former.add(i, len(w.members)+i, m.clock)
		old.disk = disks[i]
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreWithin)
	defer cancel()
	w.startRest()
	if err := w.awaitReady(ctx); err != nil {
		return // a member without data could join either cluster
	}
	ids := make(map[fsm.MemberID]bool)
	for _, m := range former.members {
		if err := m.start(); err != nil {
			w.log.Warn("failed to start a former member", "error", err)
			continue
		}
		ids[m.running().Node.ID()] = true
		defer m.kill(true)
	}
	for range formerRun / lookEvery {
		sleep(lookEvery)
		for _, m := range append(former.members, w.members...) {
			if p := m.running(); p != nil && w.hasBoth(p.Node, ids) {
				return
			}
		}
	}
}

// hasBoth reports whether a member knows living members of both clusters, which is a finding. A former member that could not be
// started is dead and in the catalog of the others.
func (w *world) hasBoth(node *cluster.Node, former map[fsm.MemberID]bool) bool {
	status, err := node.Status(context.Background())
	if err != nil {
		return false
	}
	for _, m := range status.Members {
		if m.State == topology.Alive && former[m.ID] != former[node.ID()] {
			w.find("former members and the restored cluster are one: %s knows %s", node.ID(), m.ID)
			return true
		}
	}
	return false
}

// loseDisk ends the process of a member, and gives its host an empty disk. It returns the id of the member.
func (m *member) loseDisk() (lost fsm.MemberID) {
	m.slot <- struct{}{}
	defer func() { <-m.slot }()
	if p := m.running(); p != nil {
		lost = p.Node.ID()
	}
	m.end(true)
	if lost != "" { // otherwise nobody can say which member it was
		m.replaceDisk(uint64(time.Now().UnixNano()))
	}
	return lost
}

// replace removes a member that lost its disk when its host has a new member, as an operator does, who repeats what has failed or
// was asked of a process that has ended. It is a finding if that never succeeds.
func (w *world) replace(m *member, lost fsm.MemberID) {
	begun := time.Now()
	for time.Since(begun) < replaceWithin {
		sleep(startRetry)
		p := m.running()
		if p == nil {
			continue
		}
		if p.Node.ID() == lost {
			return // a fault is planted
		}
		err := w.removeVia(p, lost)
		if err == nil {
			if w.hasBacklog && time.Since(begun) > backlogCopy {
				w.happened(simplan.Backlog)
			}
			return
		}
		w.log.Warn("failed to remove a lost member", "error", err)
	}
	w.find("the member %s, whose disk was lost, could not be removed within %v", lost, replaceWithin)
}

// removeVia has a process remove a member, and gives up when the process ends.
func (w *world) removeVia(p *process, id fsm.MemberID) error {
	ctx, cancel := context.WithTimeout(context.Background(), operateWithin)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-p.Ended:
			cancel()
		case <-done:
		}
	}()
	return p.Node.Operator().RemoveMember(ctx, id)
}
