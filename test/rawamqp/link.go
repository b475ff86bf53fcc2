package rawamqp

import (
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Settlement modes (part 2, 2.8.2 and 2.8.3).
const (
	unsettled    uint8 = 0 // snd-settle-mode
	mixed        uint8 = 2 // snd-settle-mode
	settleFirst  uint8 = 0 // rcv-settle-mode
	settleSecond uint8 = 1 // rcv-settle-mode
)

func ptr[T any](v T) *T { return &v }

// Sender returns the attach of a link that sends to an entity.
func Sender(handle uint32, entity string) *wire.Attach {
	return &wire.Attach{
		Name: fmt.Sprintf("sender-%d", handle), Handle: handle, Role: wire.RoleSender,
		SndSettleMode: ptr(mixed), RcvSettleMode: ptr(settleFirst),
		Source: &wire.Source{Address: "client"}, Target: &wire.Target{Address: entity}, InitialDeliveryCount: new(uint32),
	}
}

// Receiver returns the attach of a link that receives from an entity under locks.
func Receiver(handle uint32, entity string) *wire.Attach {
	return &wire.Attach{
		Name: fmt.Sprintf("receiver-%d", handle), Handle: handle, Role: wire.RoleReceiver,
		SndSettleMode: ptr(unsettled), RcvSettleMode: ptr(settleSecond),
		Source: &wire.Source{Address: entity}, Target: &wire.Target{Address: "client"},
	}
}

// Controller returns the attach of a link to the transaction coordinator.
func Controller(handle uint32) *wire.Attach {
	return &wire.Attach{
		Name: fmt.Sprintf("controller-%d", handle), Handle: handle, Role: wire.RoleSender,
		Source: &wire.Source{}, Coordinator: &wire.Coordinator{}, InitialDeliveryCount: new(uint32),
	}
}

// Attach attaches a link of session 0 and waits for the answer. For a link that sends, it also waits
// for the first credit.
func (c *Conn) Attach(a *wire.Attach) error {
	if err := c.Send(0, a); err != nil || c.SendOnly {
		return err
	}
	if _, err := Expect[*wire.Attach](c); err != nil {
		return err
	}
	if a.Role == wire.RoleReceiver {
		return nil
	}
	_, err := Expect[*wire.Flow](c) // a refused link receives a detach instead
	return err
}

// Credit returns the flow that grants credit to a link of a new session.
func Credit(handle, credit uint32) *wire.Flow {
	return &wire.Flow{
		NextIncomingID: new(uint32), IncomingWindow: WindowTransfers, OutgoingWindow: WindowTransfers,
		Handle: &handle, DeliveryCount: new(uint32), LinkCredit: &credit,
	}
}

// Message returns an encoded message with one data section.
func Message(body []byte) []byte {
	return wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), body)
}

// transferBytes is the largest payload of one transfer frame.
const transferBytes = 60_000

// Transfer sends one whole message on a link of session 0 and waits for its disposition. state is
// the transactional state of a message in a transaction, otherwise nil.
func (c *Conn) Transfer(handle uint32, message []byte, state any) (*wire.Disposition, error) {
	id := c.next
	c.next++
	tag := []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	for more := true; more; {
		part := message[:min(len(message), transferBytes)]
		message = message[len(part):]
		more = len(message) > 0
		t := &wire.Transfer{Handle: handle, DeliveryID: &id, DeliveryTag: tag, MessageFormat: new(uint32), State: state, More: more, Payload: part}
		if err := c.Send(0, t); err != nil {
			return nil, err
		}
	}
	for { // deliveries that a discharge settles come before its own answer
		d, err := Expect[*wire.Disposition](c)
		if err != nil || d.Role == wire.RoleReceiver {
			return d, err
		}
	}
}

// Declare begins a transaction on a controller link.
func (c *Conn) Declare(handle uint32) ([]byte, error) {
	d, err := c.Transfer(handle, section(&wire.Declare{}), nil)
	if err != nil {
		return nil, fmt.Errorf("declare a transaction: %w", err)
	}
	declared, ok := d.State.(*wire.Declared)
	if !ok {
		return nil, fmt.Errorf("declare a transaction: %+v", d.State)
	}
	return append([]byte{}, declared.TxnID...), nil
}

// Discharge ends a transaction: it commits the transaction, or rolls it back when fail is true.
func (c *Conn) Discharge(handle uint32, txn []byte, fail bool) error {
	d, err := c.Transfer(handle, section(&wire.Discharge{TxnID: txn, Fail: fail}), nil)
	if err != nil {
		return fmt.Errorf("discharge a transaction: %w", err)
	}
	if _, ok := d.State.(*wire.Accepted); !ok {
		return fmt.Errorf("discharge a transaction: %+v", d.State)
	}
	return nil
}

// section encodes a command to the coordinator as a message.
func section(command any) []byte {
	return wire.AppendValue(wire.AppendSectionDescriptor(nil, wire.SectionValue), command)
}
