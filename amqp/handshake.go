package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
		c.totals.logins.Add(1)
	}
	c.sendRaw(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLOutcome{Code: login.Outcome(refused)}))
	return refused
}

// open reads the peer's open and answers it (part 2, 2.7.1).
func (c *conn) open(ctx context.Context) error {
	var peer *wire.Open
	for peer == nil {
		frame, err := c.reader.ReadFrame()
		if err != nil {
			return fmt.Errorf("read open: %w", err)
		}
		if frame.Body == nil && frame.Type == wire.FrameAMQP {
			continue
		}
		var ok bool
		if peer, ok = frame.Body.(*wire.Open); !ok || frame.Type != wire.FrameAMQP {
			return fmt.Errorf("%T instead of open: %w", frame.Body, errProtocol)
		}
	}
	if !c.negotiate(ctx, peer) {
		return errProtocol // timed out
	}
	if cause := idleTimeOutTooShort(peer); cause != nil {
		c.fail(ctx, cause)
		return nil
	}
	if peer.Hostname == nil {
		return nil
	}
	c.host = strings.Clone((*peer.Hostname)[:min(len(*peer.Hostname), hostBytesMax)])
	switch err := c.credentials.SelectNamespace(ctx, *peer.Hostname); {
	case err == nil:
		return nil
	case !errors.Is(err, login.ErrOtherNamespace):
		c.fail(ctx, &wire.Error{Condition: wire.ConditionServerBusy, Description: fmt.Sprintf(
			"The host '%.256s' may select a namespace that this member does not know yet. Try again.", *peer.Hostname)})
		return nil
	}
	// A right in one namespace is not valid in another. Our open is sent first, because an error can be
	// reported only after it (part 2, 2.4.1).
	c.fail(ctx, &wire.Error{Condition: wire.ConditionUnauthorizedAccess, Description: fmt.Sprintf(
		"Unauthorized access. The login was for another namespace than that of the host '%.256s'. Send the same host name in sasl-init, or use TLS with it.", *peer.Hostname)})
	return nil
}

// idleTimeOutTooShort returns the error for a connection whose idle-time-out is so short that keeping it alive
// would cost too much (part 2, 2.4.5); nil if it is long enough. 0 means no time-out.
func idleTimeOutTooShort(peer *wire.Open) *wire.Error {
	if peer.IdleTimeOut == nil || *peer.IdleTimeOut == 0 || time.Duration(*peer.IdleTimeOut)*time.Millisecond >= idleTimeOutMin {
		return nil
	}
	return &wire.Error{Condition: wire.ConditionInvalidField, Description: fmt.Sprintf(
		"The idle-time-out of %d ms is too short. Announce %d ms or more, or none.", *peer.IdleTimeOut, idleTimeOutMin/time.Millisecond)}
}

// negotiate answers the peer's open and applies its limits; false when the connection
// has ended.
func (c *conn) negotiate(ctx context.Context, peer *wire.Open) bool {
	frameMax, channels, idle := uint32(frameBytesMax), uint16(channelMax), uint32(idleTimeOut/time.Millisecond)
	c.mu.Lock()
	defer c.unlock()
	if c.phase != phaseOpening {
		return false
	}
	c.emit(0, &wire.Open{
		ContainerID:  c.config.ContainerID,
		MaxFrameSize: &frameMax,
		ChannelMax:   &channels,
		IdleTimeOut:  &idle,
		Properties: wire.Map{
			{Key: wire.Symbol("product"), Value: "peeklock"},
			{Key: wire.Symbol("version"), Value: c.config.Version},
		},
	})
	c.peerFrameMax = frameBytesMax
	if peer.MaxFrameSize != nil {
		c.peerFrameMax = max(frameBytesMin, min(frameBytesMax, *peer.MaxFrameSize))
	}
	if peer.ChannelMax != nil {
		c.channelMax = min(channelMax, *peer.ChannelMax)
	}
	if peer.IdleTimeOut != nil && *peer.IdleTimeOut != 0 {
		c.peerIdleTimeout = max(idleTimeOutMin, time.Duration(*peer.IdleTimeOut)*time.Millisecond)
	}
	c.clientID = strings.Clone(peer.ContainerID[:min(len(peer.ContainerID), clientIDBytesMax+1)])
	c.library = libraryOf(peer)
	c.phase = phaseOpen
	c.resetTimer()
	c.log.DebugContext(ctx, "connection opened", "container", peer.ContainerID, "frame_max", c.peerFrameMax)
	return true
}

// sendRaw sends bytes outside of any session.
func (c *conn) sendRaw(b []byte) {
	c.mu.Lock()
	defer c.unlock()
	c.out = append(c.out, b...)
	c.notify()
}
