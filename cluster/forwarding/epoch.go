package forwarding

import (
	"context"
	"errors"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// errOutdated says that the destination has accepted another batch of the source instead, or a later one.
var errOutdated = errors.New("the destination has a later batch of this entity")

// renewBatch gives a batch a new epoch after its destination has refused it as outdated. If the batch is
// no longer in flight, because another leader has ended it, the command does nothing. Otherwise the
// source has an older state than the destination: the batch and those that follow can only arrive in
// another epoch. The next step sends the batch again.
func (f *Forwarder) renewBatch(ctx context.Context, task *forwardTask, group rpc.Group, batch *fsm.Result, refusal error) stepResult {
	_, result := submit(ctx, group, fsm.BeginEpoch{
		Epoch: raftgroup.NewEpoch(), Address: task.source.Address, Serial: batch.Serial, Replaces: batch.Epoch,
	})
	if result != stepMore {
		return result
	}
	return f.backOff(ctx, task, refusal)
}
