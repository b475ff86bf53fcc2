package amqp

import (
	"fmt"
	"testing"
	"time"

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

// TestThrottledEntitiesAreBounded fills the counts: further entities are counted together, until they can take the places of those that were
// still for an hour.
func TestThrottledEntitiesAreBounded(t *testing.T) {
	t.Parallel()
	var counts throttled
	now := time.Unix(1_000_000, 0)
	add := func(i int) { counts.add(&fsm.Entity{Namespace: 1, Name: fmt.Sprint("q", i)}, 1, now) }
	for i := range throttledMax + 2 {
		add(i)
	}
	others := func() (n uint64) {
		for _, e := range counts.list() {
			if e.Name == "" {
				n += e.Requests
			}
		}
		return n
	}
	if n := len(counts.list()); n != throttledMax+1 || others() != 2 {
		t.Errorf("got %d entities and %d requests of others, want %d and 2", n, others(), throttledMax+1)
	}
	now = now.Add(throttledKept)
	add(0) // is not still
	add(throttledMax)
	if n := len(counts.list()); n != 3 || others() != 2 {
		t.Errorf("got %d entities and %d requests of others, want two entities and the others", n, others())
	}
}
