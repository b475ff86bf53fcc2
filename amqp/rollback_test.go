package amqp

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
)

// After a rollback, deliveries that the client has settled in the transaction are no longer unsettled: the client has
// forgotten them. The others can be settled again.
func TestRollbackForgetsWhatTheClientSettled(t *testing.T) {
	t.Parallel()
	for name, doomed := range map[string]bool{"rolled back": false, "refused, then rolled back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTransactionLog("orders")
			p := receivingPeer(t, b, 3)
			txn := p.declare(0)
			p.settleIn(txn, 0, 2, &wire.Accepted{})
			p.within(txn, wire.RoleSender, 0, 2, "accepted")
			p.send(dispose(0, 1, true, &wire.TransactionalState{TxnID: txn, Outcome: &wire.Accepted{}}))
			if doomed {
				p.settleIn(txn, 2, 2, &wire.Accepted{}) // a second time
				p.rejected(2, wire.RoleSender, wire.ConditionMessageLockLost, false)
			}
			p.rollback(1, txn)
			p.send(dispose(0, 0, false, &wire.Accepted{}))
			p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost)
			p.send(dispose(2, 2, false, &wire.Accepted{}))
			if d := expect[*wire.Disposition](p); d.First != 2 || typeName(d.State) != "accepted" {
				t.Errorf("disposition %+v state %+v", d, d.State)
			}
			if c := b.counts("orders"); c.Active != 2 || c.Locked != 2 {
				t.Errorf("counts %+v: what the client settled stays locked until its locks end", c)
			}
		})
	}
}
