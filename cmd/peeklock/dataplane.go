package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/Azure/go-amqp"
)

// How the command line connects to the AMQP side.
const (
	dialTimeMax = 5 * time.Second
	// containerID shows in the members' logs and traces.
	containerID = "peeklock-cli"
)

// data is a session with a member over AMQP.
type data struct {
	conn    *amqp.Conn
	session *amqp.Session
}

// dial opens a session with the first member that answers. Signing in is SASL PLAIN:
// putting tokens to $cbs would need two more links for the same result.
func (c *client) dial(ctx context.Context, addresses []string) (*data, error) {
	name, key, _ := c.credentials()
	var all []error
	for _, address := range addresses {
		d, err := dialOne(ctx, address, name, key)
		if err == nil {
			return d, nil
		}
		all = append(all, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(all...)
}

func dialOne(ctx context.Context, address, name, key string) (*data, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeMax)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("%q is no address: write host:port", address)
	}
	conn, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{
		ContainerID: containerID, HostName: host, SASLType: amqp.SASLTypePlain(name, key),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a session with %s: %w", address, err)
	}
	return &data{conn: conn, session: session}, nil
}

// close ends the connection; links and session end with it.
func (d *data) close() { _ = d.conn.Close() }

// connect learns the addresses from the control API and dials.
func (c *client) connect(ctx context.Context) (*data, error) {
	addresses, err := c.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	return c.dial(ctx, addresses)
}

// receiver attaches a peek-lock receiver, or one that takes messages for good. The modes
// are those of the official clients (second means: wait for the broker's word on every
// settlement).
func (d *data) receiver(ctx context.Context, source string, credit int32, takes bool) (*amqp.Receiver, error) {
	options := &amqp.ReceiverOptions{Credit: credit}
	if takes {
		options.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
		options.SettlementMode = amqp.ReceiverSettleModeFirst.Ptr()
	} else {
		options.SettlementMode = amqp.ReceiverSettleModeSecond.Ptr()
	}
	return d.session.NewReceiver(ctx, source, options)
}

// refused says whether err is the member's answer to one message. Anything else (a link
// that was detached, a lost connection, time that ran out) leaves open what happened.
func refused(err error) bool {
	var answer *amqp.Error
	var link *amqp.LinkError
	var session *amqp.SessionError
	var conn *amqp.ConnError
	return errors.As(err, &answer) && !errors.As(err, &link) && !errors.As(err, &session) && !errors.As(err, &conn)
}

// plainError takes the decoration off what go-amqp reports of an answer.
func plainError(err error) error {
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		err = link.RemoteErr
	}
	var conn *amqp.ConnError
	if errors.As(err, &conn) && conn.RemoteErr != nil {
		err = conn.RemoteErr
	}
	var answer *amqp.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("%s (%s)", answer.Description, answer.Condition)
	}
	return err
}
