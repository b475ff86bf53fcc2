package amqp

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// slowReceiveBroker has not searched for messages yet when a waiting Lock is cancelled at once: its leader is
// far away, or busy.
type slowReceiveBroker struct{ *fakeBroker }

func (h slowReceiveBroker) Receiver(at fsm.EntityRef, receiveAndDelete bool) Receiver {
	return &slowReceiver{Receiver: h.fakeBroker.Receiver(at, receiveAndDelete)}
}

type slowReceiver struct {
	Receiver
	cancelled func()
}

func (l *slowReceiver) Lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	if wait > 0 {
		l.cancelled = func() { done(fsm.Timeout, nil) }
		return
	}
	l.Receiver.Lock(most, mostBytes, wait, done)
}

func (l *slowReceiver) Cancel() { l.cancelled() }

// A drain that follows the credit immediately returns the available messages, although the call for the credit
// was cancelled before the broker searched.
func TestDrainDirectlyAfterCredit(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	h.messages(t, "orders", 3)
	p := loggedIn(t, slowReceiveBroker{h})
	p.receiver(0, "orders")
	p.credit(0, 0, 10)
	p.credit(0, 0, 10, func(f *wire.Flow) { f.Drain = true })
	p.deliveries(3)
	if f := expect[*wire.Flow](p); !f.Drain || *f.LinkCredit != 0 || *f.DeliveryCount != 10 {
		t.Errorf("answer %+v", f)
	}
}
