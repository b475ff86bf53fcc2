package abuse

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// AMQP over WebSocket, begun and never finished (RFC 6455).

const (
	upgradeRequest = "GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n"
	fragmentPace   = 20 * time.Millisecond // between two writes of fragments
	fragmentBurst  = 50                    // fragments in one write
	opContinuation = 0x0
	opBinary       = 0x2
	opPing         = 0x9
	finalFragment  = 0x80
)

// slowUpgrades send the request for an upgrade line by line, at the ports of both, and never end it.
func slowUpgrades(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(600, 3000), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		go discard(c)
		if _, err := c.Write([]byte(upgradeRequest)); err != nil {
			return err
		}
		return every(ctx, 500*time.Millisecond, func() error {
			at.countHit()
			_, err := c.Write([]byte("X-More: more\r\n"))
			return err
		})
	})
}

// webSocket is the attacker's end of an AMQP connection over WebSocket: what is written goes into messages of one
// fragment; what is read comes out of them.
type webSocket struct {
	net.Conn
	reader *bufio.Reader
	left   uint64 // bytes of the payload that is being read
}

// upgrade makes a connection one of WebSocket.
func (at *target) upgrade(conn net.Conn) (*webSocket, error) {
	ws := &webSocket{Conn: conn, reader: bufio.NewReader(conn)}
	if _, err := conn.Write([]byte(upgradeRequest + "\r\n")); err != nil || at.sink {
		return ws, err
	}
	answer, err := http.ReadResponse(ws.reader, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("upgrade: %s", answer.Status)
	}
	return ws, nil
}

// appendFragment appends a fragment with the mask 0, which leaves the payload as it is.
func appendFragment(dst []byte, first byte, payload []byte) []byte {
	const masked, length16 = 0x80, 126
	if len(payload) < length16 {
		dst = append(dst, first, masked|byte(len(payload)))
	} else {
		dst = binary.BigEndian.AppendUint16(append(dst, first, masked|length16), uint16(len(payload)))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}

// Write sends b as one message.
func (w *webSocket) Write(b []byte) (int, error) {
	if _, err := w.Conn.Write(appendFragment(nil, finalFragment|opBinary, b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read returns payloads of messages of the member, which are not masked.
func (w *webSocket) Read(b []byte) (int, error) {
	for w.left == 0 {
		var head [8]byte
		if _, err := io.ReadFull(w.reader, head[:2]); err != nil {
			return 0, err
		}
		w.left = uint64(head[1])
		if extended := map[byte]int{126: 2, 127: 8}[head[1]]; extended > 0 {
			if _, err := io.ReadFull(w.reader, head[8-extended:]); err != nil {
				return 0, err
			}
			clear(head[:8-extended])
			w.left = binary.BigEndian.Uint64(head[:])
		}
	}
	n, err := w.reader.Read(b[:min(uint64(len(b)), w.left)])
	w.left -= uint64(n)
	return n, err
}

// beginnings are the first bytes of a frame that never becomes whole, for an attacker that has signed in and for
// one that has not.
func beginnings() (amqp, sasl []byte) {
	const large, largeSASL = 60_000, 4000
	header := wire.HeaderSASL()
	amqp = append(binary.BigEndian.AppendUint32(nil, large), 2, wire.FrameAMQP, 0, 0)
	sasl = append(binary.BigEndian.AppendUint32(header[:], largeSASL), 2, wire.FrameSASL, 0, 0)
	return amqp, sasl
}

// endlessFragments sends fragments of one message that never ends, with pings between them: one byte of a frame in
// each after the sign-in; before it, almost only empty ones.
func endlessFragments(ctx context.Context, at *target) error {
	amqp, sasl := beginnings()
	return at.swarm(ctx, at.attackers(12, 60), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		ws, err := at.upgrade(c.Conn)
		if err != nil {
			return err
		}
		inside := rawamqp.New(ctx, ws)
		inside.SendOnly, inside.Host = at.sink, ownHost
		begin, signedIn := sasl, i%2 == 0
		if signedIn {
			begin = amqp
			if err := inside.Login(sendKey, ownSecret); err != nil {
				return err
			}
		}
		go discard(inside)
		first, sent := byte(opBinary), 0
		return every(ctx, fragmentPace, func() error {
			var b []byte
			for n := range fragmentBurst {
				var payload []byte
				if signedIn || n == 0 {
					payload = []byte{0}
					copy(payload, begin[min(sent, len(begin)):])
					sent++
				}
				b = appendFragment(b, first, payload)
				if first = opContinuation; n%10 == 0 {
					b = appendFragment(b, finalFragment|opPing, payload)
				}
			}
			at.countHit()
			_, err := ws.Conn.Write(b)
			return err
		})
	})
}
