package router

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestTransactionBecomesOneCommand: the partition of the settlements, or else of the first send, performs
// the operations on its entities; it sends the others through its first entity, or through the entity
// that the send names.
func TestTransactionBecomesOneCommand(t *testing.T) {
	t.Parallel()
	at := func(id fsm.EntityID, in fsm.PartitionID) fsm.EntityRef {
		return fsm.EntityRef{Entity: fsm.Entity{ID: id, Partition: in, Name: fmt.Sprint("e", id)}}
	}
	one, two, far := at(1, 1), at(2, 1), at(3, 2)
	through := kit.SendTo(far, "x")
	through.Via = &two
	subscription := one
	subscription.Kind = fsm.SubscriptionEntity
	out := func(via fsm.EntityID) fsm.TransferOut {
		return fsm.TransferOut{
			Via: via, To: fsm.Destination{Partition: 2, Entity: 3}, Name: "e3", Messages: through.Messages,
		}
	}
	settled := kit.Complete(one, fsm.LockID{Sequence: 1, Epoch: 1})
	settles := fsm.SettleMessages{Address: one.Address(), Settlements: settled.Settlements}
	send := func(id fsm.EntityID) fsm.SendMessages {
		return fsm.SendMessages{Entity: id, Messages: through.Messages}
	}
	for name, c := range map[string]struct {
		tx   fsm.Transaction
		in   fsm.PartitionID
		code fsm.Code
		want fsm.Transact
	}{
		"empty": {},
		"settles and sends": {
			tx: fsm.Transaction{Settles: []fsm.SettleAt{settled}, Sends: []fsm.SendTo{kit.SendTo(two, "x"), kit.SendTo(far, "x")}}, in: 1,
			want: fsm.Transact{Settles: []fsm.SettleMessages{settles}, Sends: []fsm.SendMessages{send(2)}, Transfers: []fsm.TransferOut{out(1)}},
		},
		"sends only": {
			tx: fsm.Transaction{Sends: []fsm.SendTo{kit.SendTo(two, "x"), kit.SendTo(one, "x"), kit.SendTo(far, "x")}}, in: 1,
			want: fsm.Transact{Sends: []fsm.SendMessages{send(2), send(1)}, Transfers: []fsm.TransferOut{out(2)}},
		},
		"through another": {
			tx: fsm.Transaction{Sends: []fsm.SendTo{through, kit.SendTo(one, "x")}}, in: 1,
			want: fsm.Transact{Sends: []fsm.SendMessages{send(1)}, Transfers: []fsm.TransferOut{out(2)}},
		},
		"through one that is elsewhere": {
			tx: fsm.Transaction{Sends: []fsm.SendTo{kit.SendTo(at(4, 4), "x"), through}}, in: 4,
			want: fsm.Transact{Sends: []fsm.SendMessages{send(4)}, Transfers: []fsm.TransferOut{out(4)}},
		},
		"settles in two partitions": {
			tx:   fsm.Transaction{Settles: []fsm.SettleAt{settled, kit.Complete(far, fsm.LockID{})}},
			code: fsm.NotAllowed,
		},
		"sends to a subscription": {tx: fsm.Transaction{Sends: []fsm.SendTo{kit.SendTo(subscription, "x")}}, code: fsm.NotAllowed},
		"sends to one subscription of a topic elsewhere": {
			tx: fsm.Transaction{
				Settles: []fsm.SettleAt{settled},
				Sends:   []fsm.SendTo{{At: far, Messages: []fsm.Message{{Only: 7}}}},
			},
			code: fsm.NotAllowed,
		},
		"sends to dead letters": {
			tx:   fsm.Transaction{Sends: []fsm.SendTo{kit.SendTo(fsm.EntityRef{Entity: one.Entity, Sub: fsm.DeadLetterQueue}, "x")}},
			code: fsm.NotAllowed,
		},
	} {
		home, command, code := groupTransaction(c.tx)
		if code != c.code {
			t.Errorf("%s: %v", name, code)
		}
		if code != fsm.OK {
			continue
		}
		if diff := cmp.Diff(c.want, command); home.Partition != c.in || diff != "" {
			t.Errorf("%s: in partition %d: %s", name, home.Partition, diff)
		}
	}
}
