package amqp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

// The protocol headers (part 2, 2.2 and part 5, 5.3.1). The one for TLS inside TCP
// (protocol id 2) is used by no SDK and is answered with what we do speak.
const (
	headerAMQP = "AMQP\x00\x01\x00\x00"
	headerSASL = "AMQP\x03\x01\x00\x00"
)

// The SASL mechanisms, in the order of the cloud service. .NET takes only MSSBCBS;
// with it and with ANONYMOUS and EXTERNAL a client proves itself by a token on $cbs.
const (
	mechanismCBS       = "MSSBCBS"
	mechanismPlain     = "PLAIN"
	mechanismAnonymous = "ANONYMOUS"
	mechanismExternal  = "EXTERNAL"
)

// saslOK and saslAuth are the outcome codes (part 5, 5.3.3.6).
const (
	saslOK   = 0
	saslAuth = 1
)

var errProtocol = errors.New("protocol fault in the handshake")

// handshake goes from the first byte to open. Clients may send everything at once
// without waiting for answers (Python does).
func (c *conn) handshake(ctx context.Context) error {
	header, err := c.reader.ReadHeader()
	if err != nil {
		return fmt.Errorf("read protocol header: %w", err)
	}
	if string(header[:]) == headerSASL {
		if err := c.sasl(ctx); err != nil {
			return err
		}
		if header, err = c.reader.ReadHeader(); err != nil {
			return fmt.Errorf("read second protocol header: %w", err)
		}
	}
	// The same bytes back, or what we would like to see (part 2, 2.2).
	c.sendRaw([]byte(headerAMQP))
	if string(header[:]) != headerAMQP {
		return fmt.Errorf("header % x: %w", header, errProtocol)
	}
	return c.open(ctx)
}

// sasl is the security layer (part 5, 5.3.2): mechanisms, init, outcome.
func (c *conn) sasl(ctx context.Context) error {
	c.sendRaw(wire.AppendFrame([]byte(headerSASL), wire.FrameSASL, 0, &wire.SASLMechanisms{
		Mechanisms: []wire.Symbol{mechanismCBS, mechanismPlain, mechanismAnonymous, mechanismExternal},
	}))
	frame, err := c.reader.ReadFrame()
	if err != nil {
		return fmt.Errorf("read sasl-init: %w", err)
	}
	init, ok := frame.Body.(*wire.SASLInit)
	if !ok || frame.Type != wire.FrameSASL {
		return fmt.Errorf("%T instead of sasl-init: %w", frame.Body, errProtocol)
	}
	refused := c.authenticate(ctx, init)
	code := uint8(saslOK)
	if refused != nil {
		code = saslAuth
	}
	c.sendRaw(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLOutcome{Code: code}))
	return refused
}

// authenticate checks a sasl-init. Only PLAIN proves anything.
func (c *conn) authenticate(ctx context.Context, init *wire.SASLInit) error {
	switch string(init.Mechanism) {
	case mechanismCBS, mechanismAnonymous, mechanismExternal:
		return nil
	case mechanismPlain:
	default:
		return fmt.Errorf("mechanism %q: %w", init.Mechanism, errProtocol)
	}
	parts := bytes.Split(init.InitialResponse, []byte{0}) // authzid, authcid, passwd (RFC 4616)
	if len(parts) != 3 {
		return fmt.Errorf("plain response of %d parts: %w", len(parts), errProtocol)
	}
	grant, err := c.config.Authorizer.Password(ctx, string(parts[1]), string(parts[2]))
	if err != nil {
		c.log.InfoContext(ctx, "password refused", "user", string(parts[1]), "error", err)
		return fmt.Errorf("sasl plain: %w", err)
	}
	c.mu.Lock()
	defer c.unlock()
	c.grants.put("", grant, time.Now())
	c.proven = true
	return nil
}

// open takes the peer's open and answers it (part 2, 2.7.1).
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
	frameMax, channels, idle := uint32(frameBytesMax), uint16(channelMax), uint32(idleTimeOut/time.Millisecond)
	c.mu.Lock()
	defer c.unlock()
	if c.phase != starting {
		return errProtocol // timed out just now
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
	if peer.IdleTimeOut != nil {
		c.peerIdle = time.Duration(*peer.IdleTimeOut) * time.Millisecond
	}
	c.phase = opened
	c.retime()
	c.log.DebugContext(ctx, "connection opened", "container", peer.ContainerID, "frame_max", c.peerFrameMax)
	return nil
}

// sendRaw sends bytes outside of any session.
func (c *conn) sendRaw(b []byte) {
	c.mu.Lock()
	defer c.unlock()
	c.out = append(c.out, b...)
	c.notify()
}
