package amqp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// TestLinksOfADeletedEntityAreDetached checks that senders and receivers, with or without credit, learn within a second
// that their entity was deleted, although another one has its name; other links stay.
func TestLinksOfADeletedEntityAreDetached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeBroker("orders", "bills")
		p := loggedIn(t, h)
		p.sender(0, "orders")
		p.receiver(1, "orders")
		p.receiver(2, "orders/$deadletterqueue")
		p.sender(3, "bills")
		p.receiver(4, "orders/$management")
		p.sender(5, "orders/$management")
		synctest.Wait()
		if err := h.DeleteEntity(t.Context(), fsm.DefaultNamespace, fsm.QueueEntity, "orders"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		h.add("orders")
		want := map[uint32]wire.Symbol{0: wire.ConditionDetachForced, 1: wire.ConditionNotFound, 2: wire.ConditionNotFound}
		for range len(want) {
			d := expect[*wire.Detach](p)
			if d.Error == nil || d.Error.Condition != want[d.Handle] || !d.Closed || !strings.Contains(d.Error.Description, "could not be found") {
				t.Errorf("link %d: detached with %+v, want %s", d.Handle, d.Error, want[d.Handle])
			}
			delete(want, d.Handle)
			p.send(&wire.Detach{Handle: d.Handle, Closed: true})
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("detached after %v", took)
		}
		p.transfer(3, 0, encodedMessage(t, nil))
		p.accepted()
		p.sender(0, "orders")
		p.transfer(0, 1, encodedMessage(t, nil))
		p.accepted()
	})
}

// TestManagementLinkOutlivesItsEntity checks that the requests of a management link find the entity that has the name when
// they come.
func TestManagementLinkOutlivesItsEntity(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders/$management")
	p.receiver(1, "orders/$management")
	p.credit(1, 0, 100)
	schedule := func(id uint32) any {
		status, _, _ := p.manage(id, management.ScheduleOperation, entries(scheduled(time.Now().Add(time.Hour))))
		return status
	}
	if status := schedule(0); status != int32(200) {
		t.Fatalf("status %v at the first entity, want 200", status)
	}
	for id := uint32(1); id < 3; id++ {
		if err := h.DeleteEntity(t.Context(), fsm.DefaultNamespace, fsm.QueueEntity, "orders"); err != nil {
			t.Fatal(err)
		}
		h.add("orders")
		if status := schedule(id); status != int32(200) {
			t.Errorf("status %v at entity %d of the name, want 200", status, id+1)
		}
	}
	if err := h.DeleteEntity(t.Context(), fsm.DefaultNamespace, fsm.QueueEntity, "orders"); err != nil {
		t.Fatal(err)
	}
	if status := schedule(3); status != int32(404) {
		t.Errorf("status %v without an entity, want 404", status)
	}
}
