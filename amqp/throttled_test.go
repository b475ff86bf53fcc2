package amqp

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// TestThrottledRequestsAreCountedByEntity refuses sends, one of them settled by its sender, and settlements, and counts them for
// their queue alone.
func TestThrottledRequestsAreCountedByEntity(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders", "other")
	h.messages(t, "orders", 2)
	s, p := piped(t, h)
	p.login()
	p.sender(0, "orders")
	p.sender(1, "other")
	p.receiver(2, "orders")
	p.credit(2, 0, 2)
	p.deliveries(2)
	if list := s.Throttled(); len(list) != 0 {
		t.Errorf("got %+v, want nothing before a refusal", list)
	}
	h.mu.Lock()
	h.sendCode, h.settle = fsm.ServerBusy, fsm.ServerBusy
	h.mu.Unlock()
	p.transfer(0, 0, encodedMessage(t, nil), func(f *wire.Transfer) { f.Settled = new(true) })
	p.transfer(0, 1, encodedMessage(t, nil))
	p.refused(1, wire.RoleReceiver, wire.ConditionServerBusy)
	p.send(dispose(0, 1, false, &wire.Accepted{}))
	p.refused(0, wire.RoleSender, wire.ConditionMessageLockLost)
	h.mu.Lock()
	h.sendCode = fsm.QuotaExceeded
	h.mu.Unlock()
	p.transfer(1, 2, encodedMessage(t, nil))
	p.refused(2, wire.RoleReceiver, wire.ConditionResourceLimitExceeded)
	list := s.Throttled()
	if len(list) != 1 || list[0].Name != "orders" || list[0].Kind != fsm.QueueEntity || list[0].Requests != 4 {
		t.Errorf("got %+v, want 4 requests of orders", list)
	}
}
