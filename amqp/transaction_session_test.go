package amqp

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
)

// TestRolledBackSettlementInASessionIsRepeated: a message of a session that was settled in a transaction which was rolled
// back is settled again over the same link, in another transaction. After the commit the delivery is settled at both
// ends, so that .NET's clients report the next attempt as a lost session.
func TestRolledBackSettlementInASessionIsRepeated(t *testing.T) {
	t.Parallel()
	h := newShortSessions(t, 1)
	p := transactionPeer(t, &transactionLog{fakeBroker: h})
	p.acceptRed(0)
	p.credit(0, 0, 1)
	id := *expect[*wire.Transfer](p).DeliveryID
	for i, fail := range []bool{true, false} {
		txn := p.declare(uint32(2 * i))
		p.settleIn(txn, id, id, &wire.Accepted{})
		p.within(txn, wire.RoleSender, id, id, "accepted")
		p.command(uint32(2*i+1), &wire.Discharge{TxnID: txn, Fail: fail})
		if !fail {
			if d := expect[*wire.Disposition](p); d.Role != wire.RoleSender || !d.Settled || d.First != id {
				t.Errorf("at the commit: %+v", d)
			}
		}
		p.discharged(uint32(2*i + 1))
	}
	if counts := h.counts("orders"); counts.Active != 0 || counts.Locked != 0 {
		t.Errorf("%+v", counts)
	}
}
