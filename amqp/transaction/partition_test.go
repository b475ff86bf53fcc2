package transaction

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// What a transaction does with a partitioned entity, it does in one partition of that.
func TestTransactionStaysInOnePartition(t *testing.T) {
	t.Parallel()
	at := fsm.EntityRef{Entity: fsm.Entity{ID: 1, Name: "orders", Shards: make([]fsm.Shard, 2)}}
	t.Run("partitions", func(t *testing.T) {
		t.Parallel()
		of := func(shard fsm.SequenceNumber) []fsm.Settlement {
			return []fsm.Settlement{{Lock: fsm.LockID{Sequence: shard<<fsm.ShardShift | 1, Epoch: 1}, Verb: fsm.Complete}}
		}
		var tx Transaction
		if cause := tx.addSettlements(at, of(1)); cause.Condition != "" {
			t.Error(cause)
		}
		if cause := tx.addSettlements(at, of(0)); cause.Condition != wire.ConditionNotAllowed {
			t.Errorf("another partition: %+v", cause)
		}
		var both Transaction
		if cause := both.addSettlements(at, append(of(0), of(1)...)); cause.Condition != wire.ConditionNotAllowed {
			t.Errorf("two partitions at once: %+v", cause)
		}
	})
	t.Run("keys", func(t *testing.T) {
		t.Parallel()
		a, b := []fsm.Message{{PartitionKey: "a"}}, []fsm.Message{{PartitionKey: "b"}}
		tx := Transaction{work: fsm.Transaction{Sends: []fsm.SendTo{{At: at, Messages: a}}}}
		if cause := tx.secondPartition(&at, a); cause.Condition != "" {
			t.Error(cause)
		}
		for _, other := range [][]fsm.Message{b, {{}}, append(a, b...)} {
			if cause := tx.secondPartition(&at, other); cause.Condition != wire.ConditionNotAllowed {
				t.Errorf("%v: %+v", other, cause)
			}
		}
	})
}
