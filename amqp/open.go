package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unique"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
)

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

// clientTextBytesMax bounds the product and the version that a client states.
const clientTextBytesMax = 64

// clientLibrary is the library of a client, from the properties of its open.
type clientLibrary struct{ product, version string }

// libraryOf returns the library that a client states. Connections with the same library share the texts.
func libraryOf(peer *wire.Open) unique.Handle[clientLibrary] {
	var l clientLibrary
	for _, p := range peer.Properties {
		text, ok := p.Value.(string)
		if !ok {
			continue
		}
		text = text[:min(len(text), clientTextBytesMax)]
		switch p.Key {
		case wire.Symbol("product"):
			l.product = text
		case wire.Symbol("version"):
			l.version = text
		}
	}
	return unique.Make(l)
}
