package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// checkpointsQuery asks a replica for its checkpoints behind an index, and tells it what a
// majority has where it is known to differ: it looks for itself and stops.
type checkpointsQuery struct {
	Partition fsm.PartitionID       `json:"Partition"`
	After     uint64                `json:"After"`
	Majority  *partition.Checkpoint `json:"Majority"`
}

// compareState is what the compare loop remembers of a group that is led here.
type compareState struct {
	agreedIndex uint64 // all replicas were equal at this checkpoint, and looked at
	loggedIndex uint64 // the difference at it was logged
}

// compareLoop compares the replicas of all groups that are led here, over and over, and has
// those stop that differ from a majority of the voters.
func (n *Node) compareLoop(ctx context.Context) {
	of := make(map[fsm.PartitionID]*compareState)
	ticker := time.NewTicker(n.config.Timing.Compare)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for id, group := range *n.groups.Load() {
			if status := group.Status(); !status.IsLeader {
				delete(of, id)
				n.undecided.Delete(id)
			} else if ctx.Err() == nil {
				if of[id] == nil {
					of[id] = &compareState{}
				}
				n.compare(ctx, id, group, &status, of[id])
			}
		}
	}
}

// compare looks at the replicas of one group. In an idle group there is nothing new to look at.
func (n *Node) compare(ctx context.Context, id fsm.PartitionID, group *partition.Group, status *partition.Status, c *compareState) {
	own := checkpointsAfter(group.Checkpoints(), c.agreedIndex)
	if len(own) == 0 {
		return
	}
	newest := own[len(own)-1]
	all := n.checkpoints(ctx, id, own, status, c.agreedIndex)
	of := make(map[string][]partition.Checkpoint)
	for _, v := range status.Voters {
		of[v.Replica] = all[v.Replica]
	}
	found := partition.CompareCheckpoints(of, len(status.Voters))
	if found.Index != 0 && found.Majority.Index == 0 {
		n.undecided.Store(id, found.Index)
		n.logUndecided(ctx, id, c, of, found.Index)
		return
	}
	n.undecided.Delete(id)
	if found.Index != 0 {
		n.haltDiverged(ctx, id, group, status, &found)
		return
	}
	// The voters are equal as far as they answered: who has no vote is measured against them.
	everybody := true
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		theirs := all[v.Replica]
		everybody = everybody && slices.Contains(theirs, newest)
		for _, p := range own {
			at := func(x partition.Checkpoint) bool { return x.Index == p.Index && x.Version == p.Version }
			if i := slices.IndexFunc(theirs, at); i >= 0 && theirs[i] != p && countReplicas(of, p) > len(status.Voters)/2 {
				n.haltDiverged(ctx, id, group, status, &partition.Difference{Index: p.Index, Majority: p, Outliers: []string{v.Replica}})
				return
			}
		}
	}
	if everybody {
		c.agreedIndex = newest.Index
	}
}

// countReplicas counts the replicas that have a checkpoint.
func countReplicas(of map[string][]partition.Checkpoint, p partition.Checkpoint) (n int) {
	for _, list := range of {
		if slices.Contains(list, p) {
			n++
		}
	}
	return n
}

// checkpointsAfter are the checkpoints behind an index.
func checkpointsAfter(list []partition.Checkpoint, index uint64) []partition.Checkpoint {
	return slices.DeleteFunc(list, func(p partition.Checkpoint) bool { return p.Index <= index })
}

// checkpoints asks all replicas of a group, one after the other: this is never urgent.
func (n *Node) checkpoints(ctx context.Context, id fsm.PartitionID, own []partition.Checkpoint, status *partition.Status, index uint64,
) map[string][]partition.Checkpoint {
	all := make(map[string][]partition.Checkpoint)
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		switch {
		case v.Member == n.self:
			all[v.Replica] = own
		case n.isAlive(v.Member):
			theirs, err := n.askCheckpoints(ctx, v.Member, checkpointsQuery{Partition: id, After: index})
			if err == nil && theirs.Replica == v.Replica {
				all[v.Replica] = theirs.Checkpoints
			}
		}
	}
	return all
}

// checkpointsReply is a replica's answer. One that has stopped answers too.
type checkpointsReply struct {
	Replica     string                 `json:"Replica"`
	Checkpoints []partition.Checkpoint `json:"Checkpoints"`
}

func (n *Node) askCheckpoints(ctx context.Context, member fsm.MemberID, q checkpointsQuery) (r checkpointsReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
	defer cancel()
	arguments, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	reply, err := n.askNode(ctx, member, rpc.QueryCheckpoints, arguments)
	if err == nil {
		err = reply.Decode(&r)
	}
	return r, err
}

// answerCheckpoints answers rpc.QueryCheckpoints.
func (n *Node) answerCheckpoints(q checkpointsQuery) (checkpointsReply, error) {
	group := (*n.groups.Load())[q.Partition]
	if group == nil {
		return checkpointsReply{}, fmt.Errorf("no replica of partition %d is open here: %w", q.Partition, fsm.EntityNotFound)
	}
	if q.Majority != nil {
		if err := group.HaltDiverged(*q.Majority); err != nil {
			return checkpointsReply{}, fmt.Errorf("%w: %w", fsm.PreconditionFails, err)
		}
	}
	return checkpointsReply{Replica: n.replicaName(q.Partition), Checkpoints: checkpointsAfter(group.Checkpoints(), q.After)}, nil
}

// haltDiverged has replicas stop that differ from the majority. Our own, should it be one, last.
func (n *Node) haltDiverged(ctx context.Context, id fsm.PartitionID, group *partition.Group, status *partition.Status, found *partition.Difference) {
	ours := false
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		if !slices.Contains(found.Outliers, v.Replica) {
			continue
		}
		if v.Member == n.self {
			ours = true
			continue
		}
		if theirs, err := n.replicaStatus(ctx, v.Member, id); err == nil && theirs.Halted && theirs.Replica == v.Replica {
			continue // it was told before, and waits to be replaced
		}
		_, err := n.askCheckpoints(ctx, v.Member, checkpointsQuery{Partition: id, After: found.Index, Majority: &found.Majority})
		if err != nil {
			n.log.WarnContext(ctx, "stop a replica that differs from the majority", "partition", id, "peer", v.Member, "index", found.Index, "error", err)
			continue
		}
		n.log.ErrorContext(ctx, "replica differs from the majority and was stopped; clients go on with the others: "+
			"replace it with two moves (peeklock partition move), first to the other members, then with this one again",
			"partition", id, "peer", v.Member, "replica", v.Replica, "index", found.Index)
	}
	if ours {
		if err := group.HaltDiverged(found.Majority); err != nil {
			n.log.WarnContext(ctx, "stop our own replica, which differs from the majority", "partition", id, "index", found.Index, "error", err)
		}
	}
}

// logUndecided says once that replicas differ and nobody can tell who is right.
func (n *Node) logUndecided(ctx context.Context, id fsm.PartitionID, c *compareState, of map[string][]partition.Checkpoint, index uint64) {
	if c.loggedIndex == index {
		return
	}
	c.loggedIndex = index
	var digests []string
	for replica, list := range of {
		for _, p := range list {
			if p.Index == index {
				digests = append(digests, fmt.Sprintf("%s: %016x", replica, p.Digest))
			}
		}
	}
	slices.Sort(digests)
	n.log.ErrorContext(ctx, "replicas differ and none has a majority: all go on as they are; take a backup of the partition now, "+
		"and find out with it who is right (peeklock cluster verify) before its leader changes",
		"partition", id, "index", index, "digests", digests)
}
