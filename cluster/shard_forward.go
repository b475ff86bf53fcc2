package cluster

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// deliver brings messages to an entity, or to the shards of one: each to that of its key,
// those without a key all to one, which the serial chooses. A batch that is brought again
// is spread in the same way, and each shard knows what it has taken, so each message
// arrives once.
func (c *carrier) deliver(ctx context.Context, to fsm.Destination, entity *fsm.Entity, command fsm.TransferMessages) ([]fsm.Code, error) {
	if len(entity.Shards) == 0 || to.Entity != entity.ID {
		return c.deliverTo(ctx, to.Partition, command)
	}
	places := make([][]int, len(entity.Shards))
	for i := range command.Messages {
		shard := int(command.Serial % uint64(len(entity.Shards)))
		if key, bound := shardKey(entity, &command.Messages[i].Message); bound {
			shard = hashShard(entity, key)
		}
		places[shard] = append(places[shard], i)
	}
	codes := make([]fsm.Code, len(command.Messages))
	for shard, some := range places {
		if len(some) == 0 {
			continue
		}
		part := command
		part.Entity, part.Messages = entity.Shards[shard].Entity, make([]fsm.Transferred, len(some))
		for i, place := range some {
			part.Messages[i] = command.Messages[place]
		}
		answers, err := c.deliverTo(ctx, entity.Shards[shard].Partition, part)
		if err != nil {
			return nil, err
		}
		for i, place := range some {
			codes[place] = answers[i]
		}
	}
	return codes, nil
}

func (c *carrier) deliverTo(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) ([]fsm.Code, error) {
	result, err := c.roads.transfer(ctx, to, command)
	if err != nil {
		return nil, err
	}
	n := len(command.Messages)
	if passing(result.Code) {
		return nil, fmt.Errorf("bring a batch of %d messages: %w", n, result.Code)
	}
	return codesOf(result, n), nil
}
