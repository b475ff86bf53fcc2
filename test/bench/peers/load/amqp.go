package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/go-amqp"
)

// amqpBroker speaks AMQP 1.0: Peeklock and RabbitMQ.
type amqpBroker struct {
	members []string
	user    string // and the password, with a colon between them
	prefix  string // of addresses
	confirm bool   // settlements wait for the answer
}

type amqpConnection struct {
	broker  *amqpBroker
	conn    *amqp.Conn
	session *amqp.Session
}

func (b *amqpBroker) connect(ctx context.Context, member int) (connection, error) {
	address := b.members[member%len(b.members)]
	name, password, _ := strings.Cut(b.user, ":")
	conn, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(name, password)})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open session at %s: %w", address, err)
	}
	return &amqpConnection{b, conn, session}, nil
}

func (c *amqpConnection) close() { _ = c.conn.Close() }

type amqpSender struct {
	link    *amqp.Sender
	message amqp.Message // reused: go-amqp has copied it when a send returns
}

func (c *amqpConnection) sender(ctx context.Context, queue string) (sender, error) {
	link, err := c.session.NewSender(ctx, c.broker.prefix+queue, nil)
	if err != nil {
		return nil, fmt.Errorf("attach sender to %s: %w", queue, err)
	}
	return &amqpSender{link: link}, nil
}

func (s *amqpSender) send(ctx context.Context, body []byte) (answer, error) {
	s.message.Data = [][]byte{body}
	s.message.Header = &amqp.MessageHeader{Durable: true}
	receipt, err := s.link.SendWithReceipt(ctx, &s.message, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		state, err := receipt.Wait(ctx)
		if err != nil {
			return err
		}
		if _, is := state.(*amqp.StateAccepted); !is {
			return fmt.Errorf("the broker answered %T", state)
		}
		return nil
	}, nil
}

type amqpReceiver struct{ link *amqp.Receiver }

func (c *amqpConnection) receiver(ctx context.Context, queue string, credit int) (receiver, error) {
	mode := amqp.ReceiverSettleModeFirst
	if c.broker.confirm {
		mode = amqp.ReceiverSettleModeSecond
	}
	link, err := c.session.NewReceiver(ctx, c.broker.prefix+queue, &amqp.ReceiverOptions{Credit: int32(credit), SettlementMode: mode.Ptr()}) //nolint:gosec // small
	if err != nil {
		return nil, fmt.Errorf("attach receiver to %s: %w", queue, err)
	}
	return &amqpReceiver{link}, nil
}

type amqpDelivery struct {
	link    *amqp.Receiver
	message *amqp.Message
}

func (r *amqpReceiver) receive(ctx context.Context) (delivery, error) {
	message, err := r.link.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	if len(message.Data) != 1 {
		return nil, errors.New("a message came without its body")
	}
	return amqpDelivery{r.link, message}, nil
}

func (d amqpDelivery) body() []byte { return d.message.Data[0] }

func (d amqpDelivery) settle(ctx context.Context) error { return d.link.AcceptMessage(ctx, d.message) }
