package replicas

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// retireQueryTimeout bounds the query whether a replica was removed.
const retireQueryTimeout = 5 * time.Second

// Retirer removes the replicas of a Set that the catalog has retired. Its methods may be called concurrently.
type Retirer struct {
	*Set

	// Confirm returns nil if the leader of a group confirms that a replica of this member was removed from it for good.
	Confirm func(ctx context.Context, id fsm.PartitionID, number uint32) error
	Go      func(task func(ctx context.Context)) bool // runs a task until the member closes, false while it closes
	// Closing is called before an open replica is destroyed, and Removed when a replica was removed. They must not block.
	Closing func(id fsm.PartitionID)
	Removed func()
	// Busy has a buffer of one and is full while replicas are removed.
	Busy chan struct{}
}

// Retire closes the replicas of this member that are retired and removes their files, in a task of its own.
// Only one such task runs at a time. It is repeated until no retired replica is left.
func (r *Retirer) Retire(placed []fsm.Partition) {
	if len(r.Retired(placed)) == 0 {
		return
	}
	select {
	case r.Busy <- struct{}{}:
	default:
		return
	}
	if !r.Go(func(ctx context.Context) {
		defer func() { <-r.Busy }()
		r.retireAll(ctx, placed)
	}) {
		<-r.Busy
	}
}

func (r *Retirer) retireAll(ctx context.Context, placed []fsm.Partition) {
	for _, old := range r.Retired(placed) {
		if ctx.Err() != nil {
			return
		}
		if err := r.retireOne(ctx, old.Partition, old.Number); err != nil {
			r.Logger.DebugContext(ctx, "could not remove a retired replica, will retry", "partition", old.Partition, "number", old.Number, "error", err)
		}
	}
}

// Retired lists the replicas of this member that the record of their partition shows as removed. If the
// record does not contain the partition yet, or has not assigned the number yet, the record is outdated: after
// a restart, this member's replica of the catalog begins where its snapshot ends.
func (r *Retirer) Retired(placed []fsm.Partition) (out []datadir.Replica) {
	all, err := r.Dir.Replicas()
	if err != nil {
		r.Logger.Error("failed to list replicas to retire", "error", err)
		return nil
	}
	for _, own := range all {
		if int64(own.Partition) <= int64(len(placed)) && placement.IsRetired(&placed[own.Partition-1], fsm.Replica{Member: r.Self, Number: own.Number}) {
			out = append(out, own)
		}
	}
	return out
}

// retireOne removes one replica, once its group has removed it. Package partition marks the folder before it
// removes the first file, so that the next start completes a removal that a crash has interrupted.
func (r *Retirer) retireOne(ctx context.Context, id fsm.PartitionID, number uint32) error {
	group, open := r.Group(id), r.Number(id) == number
	if !open || group == nil || !group.Status().Removed {
		if err := r.confirm(ctx, id, number); err != nil {
			return err
		}
	}
	// A removal that has begun is completed even if this member closes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	path := r.Dir.ReplicaPath(id, number)
	var err error
	if open && group != nil {
		r.unregister(id)
		r.Closing(id)
		err = group.Destroy(ctx)
	} else {
		err = partition.Drop(r.Log, id, raftgroup.ReplicaID(r.Self, number), path)
	}
	if err != nil {
		return err
	}
	r.Logger.InfoContext(ctx, "retired replica was removed", "partition", id, "number", number)
	r.Removed() // another replica of the group may wait until this one is closed
	return nil
}

// confirm asks the leader of the group whether the replica was removed: a replica that was away at
// that time does not know it.
func (r *Retirer) confirm(ctx context.Context, id fsm.PartitionID, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, retireQueryTimeout)
	defer cancel()
	return r.Confirm(ctx, id, number)
}
