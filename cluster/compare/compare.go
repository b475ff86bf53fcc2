package compare

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// requestTimeout bounds one request to another member.
const requestTimeout = time.Second

// CheckpointsRequest asks a replica for its checkpoints behind an index, and tells it what a
// majority has where it is known to differ: the replica compares for itself and stops.
type CheckpointsRequest struct {
	Partition fsm.PartitionID       `json:"Partition"`
	After     uint64                `json:"After"`
	Majority  *partition.Checkpoint `json:"Majority"`
}

// Checkpoints is a replica's answer. A replica that has stopped answers too.
type Checkpoints struct {
	Replica     string                 `json:"Replica"`
	Checkpoints []partition.Checkpoint `json:"Checkpoints"`
}

// DigestRequest asks a replica for the digest of its state at an index. The answer is Stale when
// the replica has passed the index.
type DigestRequest struct {
	Partition fsm.PartitionID `json:"Partition"`
	Index     uint64          `json:"Index"`
}

// Members is the access of a Comparer to the members of the cluster, this one included.
type Members interface {
	IsAlive(member fsm.MemberID) bool
	Status(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error)
	Checkpoints(ctx context.Context, member fsm.MemberID, request CheckpointsRequest) (Checkpoints, error)
	Digest(ctx context.Context, member fsm.MemberID, request DigestRequest) (uint64, error)
}

// Config is what a Comparer needs.
type Config struct {
	Self     fsm.MemberID
	Interval time.Duration // between two comparisons
	Groups   func() map[fsm.PartitionID]*partition.Group
	// ReplicaName returns the name in raft of this member's replica of a partition.
	ReplicaName func(fsm.PartitionID) string
	Members     Members
	Logger      *slog.Logger
}

// Comparer compares replicas. Its methods may be called concurrently, Run once.
type Comparer struct {
	Config

	undecided sync.Map // of fsm.PartitionID: led here, and replicas differ of which none has a majority
}

// New returns a Comparer.
func New(config Config) *Comparer { return &Comparer{Config: config} }

// IsUndecided reports whether replicas of a partition led here differ and none has a majority.
func (c *Comparer) IsUndecided(id fsm.PartitionID) bool {
	_, undecided := c.undecided.Load(id)
	return undecided
}

// groupState is what Run remembers of a group that is led here.
type groupState struct {
	agreedIndex uint64 // all replicas were present and equal at this checkpoint
	loggedIndex uint64 // the difference at this checkpoint was logged
}

// Run compares the replicas of all groups that are led here until ctx ends, and halts those that differ
// from a majority of the voters.
func (c *Comparer) Run(ctx context.Context) {
	states := make(map[fsm.PartitionID]*groupState)
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for id, group := range c.Groups() {
			if status := group.Status(); !status.IsLeader {
				delete(states, id)
				c.undecided.Delete(id)
			} else if ctx.Err() == nil {
				if states[id] == nil {
					states[id] = &groupState{}
				}
				c.compare(ctx, id, group, &status, states[id])
			}
		}
	}
}

// replica is this member's replica of a group that is compared: a [partition.Group].
type replica interface {
	Checkpoints() []partition.Checkpoint
	HaltDiverged(majority partition.Checkpoint) error
}

// compare compares the replicas of one group. In an idle group there is nothing new to compare.
func (c *Comparer) compare(ctx context.Context, id fsm.PartitionID, group replica, status *partition.Status, state *groupState) {
	own := checkpointsAfter(group.Checkpoints(), state.agreedIndex)
	if len(own) == 0 {
		return
	}
	newest := own[len(own)-1]
	all := c.collect(ctx, id, own, status, state.agreedIndex)
	ofVoters := make(map[string][]partition.Checkpoint)
	for _, v := range status.Voters {
		ofVoters[v.Replica] = all[v.Replica]
	}
	found := partition.CompareCheckpoints(ofVoters, len(status.Voters))
	if found.Index != 0 && found.Majority.Index == 0 {
		c.undecided.Store(id, found.Index)
		c.logUndecided(ctx, id, state, ofVoters, found.Index)
		return
	}
	c.undecided.Delete(id)
	if found.Index != 0 {
		c.haltDiverged(ctx, id, group, status, &found)
		return
	}
	// The voters that answered are equal: replicas without a vote are compared with them.
	allEqual := true
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		theirs := all[v.Replica]
		allEqual = allEqual && slices.Contains(theirs, newest)
		for _, p := range own {
			sameIndex := func(x partition.Checkpoint) bool { return x.Index == p.Index && x.Version == p.Version }
			if i := slices.IndexFunc(theirs, sameIndex); i >= 0 && theirs[i] != p && countReplicas(ofVoters, p) > len(status.Voters)/2 {
				c.haltDiverged(ctx, id, group, status, &partition.Difference{Index: p.Index, Majority: p, Outliers: []string{v.Replica}})
				return
			}
		}
	}
	if allEqual {
		state.agreedIndex = newest.Index
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

// checkpointsAfter returns the checkpoints behind an index.
func checkpointsAfter(list []partition.Checkpoint, index uint64) []partition.Checkpoint {
	return slices.DeleteFunc(list, func(p partition.Checkpoint) bool { return p.Index <= index })
}

// collect asks all replicas of a group, one after the other: a comparison is never urgent.
func (c *Comparer) collect(ctx context.Context, id fsm.PartitionID, own []partition.Checkpoint, status *partition.Status, index uint64,
) map[string][]partition.Checkpoint {
	all := make(map[string][]partition.Checkpoint)
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		switch {
		case v.Member == c.Self:
			all[v.Replica] = own
		case c.Members.IsAlive(v.Member):
			theirs, err := c.ask(ctx, v.Member, CheckpointsRequest{Partition: id, After: index})
			if err == nil && theirs.Replica == v.Replica {
				all[v.Replica] = theirs.Checkpoints
			}
		}
	}
	return all
}

func (c *Comparer) ask(ctx context.Context, member fsm.MemberID, request CheckpointsRequest) (Checkpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Members.Checkpoints(ctx, member, request)
}

// AnswerCheckpoints answers a CheckpointsRequest of another member.
func (c *Comparer) AnswerCheckpoints(_ context.Context, request CheckpointsRequest) (Checkpoints, error) {
	group, err := c.openGroup(request.Partition)
	if err != nil {
		return Checkpoints{}, err
	}
	if request.Majority != nil {
		if err := group.HaltDiverged(*request.Majority); err != nil {
			return Checkpoints{}, fmt.Errorf("%w: %w", fsm.PreconditionFails, err)
		}
	}
	return Checkpoints{Replica: c.ReplicaName(request.Partition), Checkpoints: checkpointsAfter(group.Checkpoints(), request.After)}, nil
}

// openGroup returns this member's replica of a partition. Errors wrap EntityNotFound.
func (c *Comparer) openGroup(id fsm.PartitionID) (*partition.Group, error) {
	if group := c.Groups()[id]; group != nil {
		return group, nil
	}
	return nil, fmt.Errorf("no replica of partition %d is open here: %w", id, fsm.EntityNotFound)
}

// haltDiverged halts the replicas that differ from the majority; that of this member last, should it be one.
func (c *Comparer) haltDiverged(ctx context.Context, id fsm.PartitionID, group replica, status *partition.Status, found *partition.Difference) {
	ours := false
	for _, v := range slices.Concat(status.Voters, status.Nonvoters) {
		if !slices.Contains(found.Outliers, v.Replica) {
			continue
		}
		if v.Member == c.Self {
			ours = true
			continue
		}
		if theirs, err := c.Members.Status(ctx, v.Member, id); err == nil && theirs.Halted && theirs.Replica == v.Replica {
			continue // it was told before, and has to be replaced
		}
		_, err := c.ask(ctx, v.Member, CheckpointsRequest{Partition: id, After: found.Index, Majority: &found.Majority})
		if err != nil {
			c.Logger.WarnContext(ctx, "failed to stop a replica that differs from the majority", "partition", id, "peer", v.Member, "index", found.Index, "error", err)
			continue
		}
		c.Logger.ErrorContext(ctx, "replica differs from the majority and was stopped; the other replicas continue to serve clients: "+
			"replace it with two moves (peeklock partition move), first to the other members, then with this one again",
			"partition", id, "peer", v.Member, "replica", v.Replica, "index", found.Index)
	}
	if ours {
		if err := group.HaltDiverged(found.Majority); err != nil {
			c.Logger.WarnContext(ctx, "failed to stop the replica of this member, which differs from the majority", "partition", id, "index", found.Index, "error", err)
		}
	}
}

// logUndecided logs once per index that replicas differ without a majority.
func (c *Comparer) logUndecided(ctx context.Context, id fsm.PartitionID, state *groupState, of map[string][]partition.Checkpoint, index uint64) {
	if state.loggedIndex == index {
		return
	}
	state.loggedIndex = index
	var digests []string
	for replica, list := range of {
		for _, p := range list {
			if p.Index == index {
				digests = append(digests, fmt.Sprintf("%s: %016x", replica, p.Digest))
			}
		}
	}
	slices.Sort(digests)
	c.Logger.ErrorContext(ctx, "replicas differ and none has a majority: all continue unchanged; take a backup of the partition now, "+
		"and use it to find out which replica is right (peeklock cluster verify) before the leader changes",
		"partition", id, "index", index, "digests", digests)
}
