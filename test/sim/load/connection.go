package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/sim/simnet"
)

// The timing of AMQP clients.
const (
	connectWithin = 5 * time.Second  // to open a connection and a link
	answerWithin  = 20 * time.Second // of one request; afterwards its outcome is unknown
	idleTimeout   = 10 * time.Second // of a connection
	drainWithin   = 5 * time.Second
	moreWithin    = 20 * time.Millisecond // between two messages that were requested together
)

// GatewayPort is the port of the gateway of each member.
const GatewayPort = 5672

// connection is an AMQP connection with one session.
type connection struct {
	conn    *amqp.Conn
	session *amqp.Session
	member  int
	gateway *Process
	manager *manager // nil: not used yet
	client  *client
}

// linkName returns a name for a new link. go-amqp draws one from numbers that begin with the time of day.
func (k *connection) linkName() string {
	k.client.links++
	return fmt.Sprintf("%s-%d", k.client.name, k.client.links)
}

// connect connects to the gateway of a member that runs; nil when that fails.
func (c *client) connect(ctx context.Context) *connection {
	p := c.process(ctx)
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	stream, err := c.cluster.Host.Dial(ctx, "tcp", simnet.Address(p.Member, GatewayPort))
	if err != nil {
		return nil
	}
	conn, err := amqp.NewConn(ctx, stream, &amqp.ConnOptions{
		ContainerID: c.name, HostName: "sim", SASLType: amqp.SASLTypePlain("anybody", "any"), IdleTimeout: idleTimeout, WriteTimeout: connectWithin,
	})
	if err != nil {
		_ = stream.Close()
		return nil
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		go conn.Close() // it waits for the peer
		return nil
	}
	return &connection{conn: conn, session: session, member: p.Member, gateway: p, client: c}
}

// close closes the connection. Messages that are not settled stay locked.
func (k *connection) close() { go k.conn.Close() } // it waits for the peer

// manager makes requests to the management node of an entity.
type manager struct {
	sender   *amqp.Sender
	receiver *amqp.Receiver
	next     uint64
}

// manage makes a request to the management node of an entity and returns an error unless it was performed.
func (k *connection) manage(path, operation string, body map[string]any) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	node, answers := path+"/$management", "answers"
	if k.manager == nil {
		sender, err := k.session.NewSender(ctx, node, &amqp.SenderOptions{Name: k.linkName()})
		if err != nil {
			return err
		}
		receiver, err := k.session.NewReceiver(ctx, node, &amqp.ReceiverOptions{Name: k.linkName(), TargetAddress: answers})
		if err != nil {
			return err
		}
		k.manager = &manager{sender: sender, receiver: receiver}
	}
	k.manager.next++
	err := k.manager.sender.Send(ctx, &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: k.manager.next, ReplyTo: &answers},
		ApplicationProperties: map[string]any{"operation": operation},
		Value:                 body,
	}, nil)
	if err != nil {
		return err
	}
	for {
		answer, err := k.manager.receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if err = k.manager.receiver.AcceptMessage(ctx, answer); err != nil {
			return err
		}
		if answer.Properties == nil || answer.Properties.CorrelationID != any(k.manager.next) {
			continue // of an earlier request that was given up
		}
		if status := fmt.Sprint(answer.ApplicationProperties["statusCode"]); status != "200" {
			return fmt.Errorf("%s: status %s: %v", operation, status, answer.ApplicationProperties["statusDescription"])
		}
		return nil
	}
}

// isRefused reports whether an error is the answer of the gateway to one message. After any other error the outcome
// is unknown.
func isRefused(err error) bool {
	var answer *amqp.Error
	var link *amqp.LinkError
	var session *amqp.SessionError
	var conn *amqp.ConnError
	if !errors.As(err, &answer) || errors.As(err, &link) || errors.As(err, &session) || errors.As(err, &conn) {
		return false
	}
	return answer.Condition != "com.microsoft:timeout" && answer.Condition != amqp.ErrCondInternalError
}
