package forwarding

import (
	"context"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// mayPass reports whether a destination may answer differently later: it has no leader, or another
// member has already transferred the batch (Stale). Unknown codes of later releases count too, because
// waiting loses nothing.
func mayPass(code fsm.Code) bool {
	final := []fsm.Code{
		fsm.OK, fsm.EntityNotFound, fsm.EntityDisabled, fsm.InvalidArgument,
		fsm.QuotaExceeded, fsm.MessageTooLarge, fsm.NotAllowed,
	}
	return !slices.Contains(final, code)
}

// sendBatch sends messages to an entity, or to the shards of one: each message with a key to the shard of
// the key, all others to one shard, which the serial selects. A repeated batch is distributed in the
// same way, and each shard knows which messages it has accepted, so each message arrives once.
func (f *Forwarder) sendBatch(ctx context.Context, to fsm.Destination, entity *fsm.Entity, command fsm.TransferMessages) ([]fsm.Code, error) {
	if len(entity.Shards) == 0 || to.Entity != entity.ID {
		return f.sendBatchTo(ctx, to.Partition, command)
	}
	positions := make([][]int, len(entity.Shards))
	for i := range command.Messages {
		shard := int(command.Serial % uint64(len(entity.Shards)))
		if key, bound := entity.ShardKey(&command.Messages[i].Message); bound {
			shard = shards.Hash(entity, key)
		}
		if command.Messages[i].Reserved != 0 {
			shard = 0 // which gave the number, and has the id of the whole
		}
		positions[shard] = append(positions[shard], i)
	}
	codes := make([]fsm.Code, len(command.Messages))
	for shard, some := range positions {
		if len(some) == 0 {
			continue
		}
		part := command
		part.Entity, part.Messages = entity.Shards[shard].Entity, make([]fsm.Transferred, len(some))
		for i, position := range some {
			part.Messages[i] = command.Messages[position]
		}
		answers, err := f.sendBatchTo(ctx, entity.Shards[shard].Partition, part)
		if err != nil {
			return nil, err
		}
		for i, position := range some {
			codes[position] = answers[i]
		}
	}
	return codes, nil
}

func (f *Forwarder) sendBatchTo(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) ([]fsm.Code, error) {
	result, err := f.deps.Transfer(ctx, to, command)
	if err != nil {
		return nil, err
	}
	n := len(command.Messages)
	if result.Code == fsm.Stale && result.Serial != 0 {
		return nil, fmt.Errorf("transfer batch %d: %w, %d: %w", command.Serial, errOutdated, result.Serial, result.Code)
	}
	if mayPass(result.Code) {
		return nil, fmt.Errorf("transfer a batch of %d messages: %w", n, result.Code)
	}
	return router.CodesOf(result, n), nil
}
