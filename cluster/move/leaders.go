package move

import (
	"context"
	"fmt"
	"sync"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// leaderReply is the status of a partition's leader, and the member that reported it.
type leaderReply struct {
	raftgroup.Status
	member fsm.MemberID
}

// leaderStatus asks the leader of a partition for its status, for at most memberQueryTimeout (1 s).
func (o *Operator) leaderStatus(ctx context.Context, id fsm.PartitionID) (leaderReply, error) {
	ctx, cancel := context.WithTimeout(ctx, memberQueryTimeout)
	defer cancel()
	member, err := o.Router.AwaitLeader(ctx, id)
	if err != nil {
		return leaderReply{}, fmt.Errorf("partition %d has no leader: %w", id, fsm.ServerBusy)
	}
	status, err := o.Node.Status(ctx, member, id)
	if err == nil && !status.IsLeader {
		err = rpc.ErrNotLeader
	}
	if err != nil {
		o.Router.SuspectLeader(id, member)
	}
	return leaderReply{status, member}, err
}

// leaderStatuses asks the leaders of all given partitions, concurrentQueriesMax at a time.
func (o *Operator) leaderStatuses(ctx context.Context, parts []fsm.Partition) map[fsm.PartitionID]leaderReply {
	all := make(map[fsm.PartitionID]leaderReply, len(parts))
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, concurrentQueriesMax)
	for i := range parts {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			if status, err := o.leaderStatus(ctx, parts[i].ID); err == nil {
				mu.Lock()
				all[parts[i].ID] = status
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return all
}
