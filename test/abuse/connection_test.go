package abuse

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Connections that are opened and not used.

// halfOpen connects and sends nothing.
func halfOpen(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(1500, 10_000), func(_ context.Context, _ int, c *rawamqp.Conn) error {
		at.countHit()
		return waitClosed(c)
	})
}

// halfHandshakes stop at every point between the first byte and the open.
func halfHandshakes(ctx context.Context, at *target) error {
	sasl, amqp := wire.HeaderSASL(), wire.HeaderAMQP()
	whole := sasl[:]
	whole = wire.AppendFrame(whole, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "ANONYMOUS"})
	whole = append(whole, amqp[:]...)
	whole = wire.AppendFrame(whole, wire.FrameAMQP, 0, openFrame())
	return at.swarm(ctx, at.attackers(1500, 10_000), func(_ context.Context, i int, c *rawamqp.Conn) error {
		at.countHit()
		if _, err := c.Write(whole[:1+i%(len(whole)-1)]); err != nil {
			return err
		}
		return waitClosed(c)
	})
}

// hello is the first message of a TLS handshake.
func hello() []byte {
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(ours, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	b := make([]byte, 16384)
	n, _ := theirs.Read(b)
	_ = theirs.Close()
	return b[:n]
}

// tlsLorises send their client hello byte by byte.
func tlsLorises(ctx context.Context, at *target) error {
	hello := hello()
	return at.swarm(ctx, at.attackers(500, 2000), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		go discard(c)
		left := hello[:len(hello)-1]
		return every(ctx, 200*time.Millisecond, func() error {
			if len(left) == 0 {
				return nil
			}
			_, err := c.Write(left[:1])
			left = left[1:]
			at.countHit()
			return err
		})
	})
}

// tlsHellos make the member answer a client hello, which costs it a signature, and disconnect.
func tlsHellos(ctx context.Context, at *target) error {
	hello := hello()
	return at.swarm(ctx, at.attackers(8, 16), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		_ = c.Close()
		return every(ctx, 50*time.Millisecond, func() error {
			return at.connect(ctx, at.amqp[i%len(at.amqp)], func(c *rawamqp.Conn) error {
				if _, err := c.Write(hello); err != nil {
					return err
				}
				if !at.sink {
					_, _ = c.Read(make([]byte, 1))
				}
				at.countHit()
				return nil
			})
		})
	})
}

// httpLorises send the header of a request line by line, to both ports of a member.
func httpLorises(ctx context.Context, at *target) error {
	http := &target{amqp: append(append([]string{}, at.amqp...), at.admin...), sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http.hits.Load()) }()
	return http.swarm(ctx, at.attackers(600, 3000), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		go discard(c)
		if _, err := c.Write([]byte("POST /v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n")); err != nil {
			return err
		}
		return every(ctx, 500*time.Millisecond, func() error {
			http.countHit()
			_, err := c.Write([]byte("X-More: more\r\n"))
			return err
		})
	})
}

// churn signs in, opens links, and disconnects without a close, repeatedly.
func churn(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(8, 16), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		_ = c.Close()
		return every(ctx, 40*time.Millisecond, func() error {
			return at.connect(ctx, at.amqp[i%len(at.amqp)], func(c *rawamqp.Conn) error {
				if err := signIn(c, listenKey); err != nil {
					return err
				}
				at.countHit()
				return c.Send(0, rawamqp.Receiver(0, openQueue))
			})
		})
	})
}

// tinyIdle asks for a heartbeat every millisecond, before it signs in and after.
func tinyIdle(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(300, 1500), func(_ context.Context, i int, c *rawamqp.Conn) error {
		at.countHit()
		login := c.Anonymous
		if i%2 == 0 {
			login = func() error { return c.Login(sendKey, ownSecret) }
		}
		if err := login(); err != nil {
			return err
		}
		o := openFrame()
		o.IdleTimeOut = ptr(uint32(1))
		if err := c.Send(0, o); err != nil {
			return err
		}
		return waitClosed(c)
	})
}
