package amqp

import (
	"testing"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// decoded returns the message of a transfer as go-amqp reads it.
func decoded(t *testing.T, transfer *wire.Transfer) *goamqp.Message {
	t.Helper()
	var m goamqp.Message
	if err := m.UnmarshalBinary(transfer.Payload); err != nil {
		t.Fatal(err)
	}
	return &m
}

// marked returns a message with first-acquirer and delivery annotations of its sender.
func marked(t *testing.T) []byte {
	t.Helper()
	encoded, err := (&goamqp.Message{
		Header:              &goamqp.MessageHeader{FirstAcquirer: true},
		DeliveryAnnotations: goamqp.Annotations{"x-own": "of the sender", "x-opt-lock-token": goamqp.UUID{1}},
		Data:                [][]byte{[]byte("x")},
	}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// A delivery over a link has the delivery annotations of the sender and the token of its lock, and of the annotations
// of the broker only those that say something. first-acquirer is true until the message has been acquired.
func TestDeliveryHasTheAnnotationsOfTheService(t *testing.T) {
	t.Parallel()
	h := newFakeBroker("orders")
	p := loggedIn(t, h)
	p.sender(0, "orders")
	p.transfer(0, 0, marked(t))
	p.accepted()
	p.receiver(1, "orders")
	for n := range uint32(2) {
		first := n == 0
		p.credit(1, n, 1)
		d := expect[*wire.Transfer](p)
		m := decoded(t, d)
		token := goamqp.UUID(message.UUIDFromToken(fsm.LockToken(d.DeliveryTag)))
		if diff := cmp.Diff(goamqp.Annotations{"x-own": "of the sender", "x-opt-lock-token": token}, m.DeliveryAnnotations); diff != "" {
			t.Errorf("delivery annotations (-want +got)\n%s", diff)
		}
		if m.Header.FirstAcquirer != first {
			t.Errorf("first-acquirer is %v at the first delivery: %v", m.Header.FirstAcquirer, first)
		}
		for _, key := range []string{"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"} {
			if _, ok := m.Annotations[key]; !ok || len(m.Annotations) != 3 {
				t.Errorf("message annotations are %v, want only number, time of enqueueing and end of the lock", m.Annotations)
			}
		}
		p.send(&wire.Disposition{Role: wire.RoleReceiver, First: *d.DeliveryID, State: &wire.Released{}})
		expect[*wire.Disposition](p)
	}
}
