package load

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// The links of a client of transactions, which go-amqp does not know.
const (
	coordinatorLink uint32 = iota
	sendLink
	receiveLink
)

const (
	transferDestination = wire.Symbol("com.microsoft:transfer-destination-address")
	movesPerConnection  = 40
)

// movedByGateway adds a queue whose messages AMQP clients move to another one in transactions.
func (b *builder) movedByGateway() {
	s := b.stream("amqp-moved")
	s.isAMQP, s.IsExact, s.immediate = true, true, true
	s.To = b.queue(s, s.Name, nil)
	s.relay = &judge.Source{At: s.To}
	s.From = []judge.Source{{At: b.queue(s, "amqp-moved-to", nil)}}
}

// moveAMQP moves messages in transactions over the gateways until receiving ends.
func (l *Load) moveAMQP(c *client, s *stream) {
	for l.receiving.Err() == nil {
		if err := l.moveOnConnection(c, s); err != nil {
			c.pause(l.receiving, reconnectAfter)
		}
	}
}

// moveOnConnection moves some messages over one connection. After an error the outcome of the last one is unknown.
func (l *Load) moveOnConnection(c *client, s *stream) error {
	p := c.process(l.receiving)
	if p == nil {
		return l.receiving.Err()
	}
	ctx, cancel := context.WithTimeout(l.receiving, connectWithin)
	defer cancel()
	stream, err := c.cluster.Host.Dial(ctx, "tcp", simnet.Address(p.Member, GatewayPort))
	if err != nil {
		return err
	}
	k := &mover{rawamqp.New(context.Background(), stream)} // it ends with its moves
	defer k.Close()
	if err := k.open(c.name, s.To.Name, s.From[0].At.Name); err != nil {
		return err
	}
	for n := uint32(0); n < movesPerConnection && l.receiving.Err() == nil; n++ {
		isRolledBack := c.rand.IntN(5) == 0
		if err := k.move(n, isRolledBack); err != nil {
			return err
		}
		l.operations.Add(1)
	}
	return nil
}

// mover is a connection that moves messages in transactions.
type mover struct{ *rawamqp.Conn }

// open logs in, and attaches the links: to the coordinator, from a queue, and through that queue to another one.
func (k *mover) open(name, from, to string) error {
	_ = k.SetReadDeadline(time.Now().Add(connectWithin))
	if err := k.Login("anybody", "any"); err != nil {
		return err
	}
	if err := k.Open(&wire.Open{ContainerID: name, Hostname: new("sim")}); err != nil {
		return err
	}
	sender := rawamqp.Sender(sendLink, from)
	sender.Properties = wire.Map{{Key: transferDestination, Value: to}}
	for _, a := range []*wire.Attach{rawamqp.Controller(coordinatorLink), sender, rawamqp.Receiver(receiveLink, from)} {
		if err := k.Attach(a); err != nil {
			return err
		}
	}
	return nil
}

// move receives a message, and moves it in a transaction, or rolls the transaction back and returns the message.
// received is the number of messages that the link has received.
func (k *mover) move(received uint32, isRolledBack bool) error {
	_ = k.SetReadDeadline(time.Now().Add(answerWithin))
	credit := rawamqp.Credit(receiveLink, 1)
	credit.DeliveryCount = &received
	if err := k.Send(0, credit); err != nil {
		return err
	}
	id, payload, err := k.receive()
	if err != nil {
		return err
	}
	_ = k.SetReadDeadline(time.Now().Add(answerWithin))
	var m amqp.Message
	if err := m.UnmarshalBinary(payload); err != nil {
		return err
	}
	moved := amqp.NewMessage(m.GetData())
	moved.Properties = &amqp.MessageProperties{MessageID: m.Properties.MessageID, Subject: m.Properties.Subject}
	if payload, err = moved.MarshalBinary(); err != nil {
		return err
	}
	transaction, err := k.Declare(coordinatorLink)
	if err != nil {
		return err
	}
	sent, err := k.Transfer(sendLink, payload, &wire.TransactionalState{TxnID: transaction})
	if err == nil {
		err = accepted(sent)
	}
	if err == nil {
		err = k.settle(transaction, id)
	}
	if err == nil {
		err = k.Discharge(coordinatorLink, transaction, isRolledBack)
	}
	if err != nil || !isRolledBack {
		return err
	}
	return k.Send(0, &wire.Disposition{Role: wire.RoleReceiver, First: id, Last: &id, Settled: true, State: &wire.Released{}})
}

// settle completes a delivery in a transaction.
func (k *mover) settle(transaction []byte, id uint32) error {
	err := k.Send(0, &wire.Disposition{
		Role: wire.RoleReceiver, First: id, Last: &id, State: &wire.TransactionalState{TxnID: transaction, Outcome: &wire.Accepted{}},
	})
	for err == nil {
		var d *wire.Disposition
		if d, err = rawamqp.Expect[*wire.Disposition](k.Conn); err == nil && d.Role == wire.RoleSender && d.First == id {
			return accepted(d)
		}
	}
	return err
}

// accepted returns an error unless a delivery is accepted in a transaction.
func accepted(d *wire.Disposition) error {
	if state, is := d.State.(*wire.TransactionalState); is {
		if _, is := state.Outcome.(*wire.Accepted); is {
			return nil
		}
	}
	return fmt.Errorf("delivery %d: %+v", d.First, d.State)
}

// receive reads the next delivery.
func (k *mover) receive() (id uint32, payload []byte, err error) {
	for isFirst := true; ; isFirst = false {
		t, err := rawamqp.Expect[*wire.Transfer](k.Conn)
		if err != nil {
			return 0, nil, err
		}
		if isFirst && t.DeliveryID != nil {
			id = *t.DeliveryID
		}
		payload = append(payload, t.Payload...)
		if !t.More {
			return id, payload, nil
		}
	}
}
