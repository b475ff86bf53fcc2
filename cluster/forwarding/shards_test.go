package forwarding

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestReservedNumbersStayInTheirShard: messages for the first shard of a partitioned entity, whose id is that of the whole, are
// spread over its shards; one that was scheduled under a reserved number goes to the shard that gave the number.
func TestReservedNumbersStayInTheirShard(t *testing.T) {
	t.Parallel()
	x := newForwarderTest(t)
	entity := fsm.Entity{ID: 50, Partition: 2, Shards: []fsm.Shard{{Partition: 2, Entity: 50}, {Partition: 3, Entity: 51}, {Partition: 4, Entity: 52}}}
	command := fsm.TransferMessages{Entity: 50, Serial: 1, Messages: []fsm.Transferred{
		{Message: fsm.Message{Payload: []byte("spread")}, Number: 1},
		{Message: fsm.Message{Payload: []byte("later"), Reserved: 7, EnqueueAt: 1}, Number: 2},
	}}
	codes, err := x.sendBatch(t.Context(), fsm.Destination{Partition: 2, Entity: 50}, &entity, command)
	if err != nil || len(codes) != 2 {
		t.Fatal(codes, err)
	}
	at := make(map[string]fsm.EntityID)
	for _, c := range x.deps.brought {
		for i := range c.Messages {
			at[string(c.Messages[i].Payload)] = c.Entity
		}
	}
	if at["spread"] != 51 || at["later"] != 50 {
		t.Errorf("messages went to %v", at)
	}
}
