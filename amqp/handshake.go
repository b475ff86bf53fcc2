package amqp

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
)

// Protocol headers (part 2, 2.2 and part 5, 5.3.1). No SDK uses the header for TLS inside TCP (protocol id 2);
// the gateway answers it with a header that it supports.
const (
	headerAMQP = "AMQP\x00\x01\x00\x00"
	headerSASL = "AMQP\x03\x01\x00\x00"
)

var errProtocol = errors.New("protocol fault in the handshake")

// handshake handles everything from the first byte to open. Clients may send all of it at once without waiting
// for answers (Python does).
func (c *conn) handshake(ctx context.Context) error {
	header, err := c.reader.ReadHeader()
	if err != nil {
		return fmt.Errorf("read protocol header: %w", err)
	}
	if err := c.credentials.SelectNamespace(ctx, tlsState(c.peer).ServerName); err != nil {
		return err
	}
	if string(header[:]) == headerSASL {
		if err := c.sasl(ctx); err != nil {
			return err
		}
		if header, err = c.reader.ReadHeader(); err != nil {
			return fmt.Errorf("read second protocol header: %w", err)
		}
	}
	// The same bytes back, or the header that the gateway supports (part 2, 2.2).
	c.sendRaw([]byte(headerAMQP))
	if string(header[:]) != headerAMQP {
		return fmt.Errorf("header % x: %w", header, errProtocol)
	}
	return c.open(ctx)
}

// OriginConn is a connection that a web page may have opened.
type OriginConn interface {
	// ForeignOrigin reports whether a page of another host opened the connection.
	ForeignOrigin() bool
}

// sasl runs the security layer (part 5, 5.3.2): mechanisms, init, outcome.
func (c *conn) sasl(ctx context.Context) error {
	c.sendRaw(wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLMechanisms{Mechanisms: login.Mechanisms()}))
	c.reader.SetMaxFrame(saslFrameBytesMax)
	frame, err := c.reader.ReadFrame()
	c.reader.SetMaxFrame(frameBytesMax)
	if err != nil {
		return fmt.Errorf("read sasl-init: %w", err)
	}
	init, ok := frame.Body.(*wire.SASLInit)
	if !ok || frame.Type != wire.FrameSASL {
		return fmt.Errorf("%T instead of sasl-init: %w", frame.Body, errProtocol)
	}
	var refused error
	if init.Hostname != nil {
		refused = c.credentials.SelectNamespace(ctx, *init.Hostname)
	}
	if refused == nil {
		ctx, cancel := context.WithTimeout(ctx, openWithin)
		defer cancel()
		refused = c.credentials.Authenticate(ctx, init, tlsState(c.peer).VerifiedChains)
	}
	if refused != nil {
		c.totals.Logins.Add(1)
	}
	c.sendRaw(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLOutcome{Code: login.Outcome(refused)}))
	return refused
}

// sendRaw sends bytes outside of any session.
func (c *conn) sendRaw(b []byte) {
	c.mu.Lock()
	defer c.unlock()
	c.out = append(c.out, b...)
	c.notify()
}
