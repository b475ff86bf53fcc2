package abuse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// What every client does, without end.

const (
	loadQueue   = "abuse-load"
	loadBurst   = 50      // small messages in one write
	largeBody   = 200_000 // bytes
	largePace   = 150 * time.Millisecond
	returnQueue = "abuse-return"
	churnTopic  = "abuse-churn"
	consolePage = "/console/"
	churnMax    = 48 // entities
)

// sendSmall sends small messages at full rate.
func sendSmall(ctx context.Context, at *target) error {
	message := rawamqp.Message(make([]byte, 100))
	return at.sendBursts(ctx, loadQueue, at.attackers(8, 24), loadBurst, stormPace, message)
}

// sendLarge sends large messages at full rate.
func sendLarge(ctx context.Context, at *target) error {
	return at.sendBursts(ctx, loadQueue, at.attackers(6, 12), 1, largePace, rawamqp.Message(make([]byte, largeBody)))
}

// sendExpiring sends messages that expire at once, and go to the dead-letter queue.
func sendExpiring(ctx context.Context, at *target) error {
	message := append(wire.AppendHeader(nil, &wire.Header{TTL: ptr(uint32(1))}), rawamqp.Message([]byte("x"))...)
	return at.sendBursts(ctx, returnQueue, at.attackers(8, 24), loadBurst, stormPace, message)
}

// sendBursts sends a message several times in each write. It waits for no answer: the member stops reading.
func (at *target) sendBursts(ctx context.Context, entity string, n, burst int, pace time.Duration, message []byte) error {
	return at.swarm(ctx, n, func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := errors.Join(signIn(c, sendKey), c.Attach(rawamqp.Sender(0, entity))); err != nil {
			return err
		}
		go discard(c)
		id := uint32(0)
		return every(ctx, pace, func() error {
			at.countHit()
			var b []byte
			for range burst {
				b = appendTransfers(b, 0, id, message)
				id++
			}
			_, err := c.Write(b)
			return err
		})
	})
}

// scheduleFar schedules messages for the next week and cancels them.
func scheduleFar(ctx context.Context, at *target) error {
	one := wire.AppendMap(wire.AppendSectionDescriptor(nil, wire.SectionMessageAnnotations), wire.Map{
		{Key: wire.Symbol("x-opt-scheduled-enqueue-time"), Value: time.Now().Add(7 * 24 * time.Hour)},
	})
	one = append(one, rawamqp.Message([]byte("later"))...)
	messages, numbers := make([]any, 500), make([]int64, 500)
	for i := range messages {
		messages[i], numbers[i] = wire.Map{{Key: "message-id", Value: fmt.Sprint(i)}, {Key: "message", Value: one}}, int64(i+1)
	}
	requests := [][]byte{
		operation("schedule-message", wire.Map{{Key: "messages", Value: messages}}),
		operation("cancel-scheduled-message", wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}}),
	}
	return at.swarm(ctx, at.attackers(8, 24), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, sendKey); err != nil {
			return err
		}
		return at.floodNode(ctx, c, loadQueue+"/$management", i%2 == 0, 1, requests)
	})
}

// abandonForever receives messages and returns all at once.
func abandonForever(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(8, 24), func(_ context.Context, _ int, c *rawamqp.Conn) error {
		if err := attachReceiver(c, returnQueue); err != nil {
			return err
		}
		if at.sink {
			at.countHit()
			return waitClosed(c)
		}
		for {
			t, err := rawamqp.Expect[*wire.Transfer](c)
			if err != nil || t.DeliveryID == nil {
				return err
			}
			at.countHit()
			d := &wire.Disposition{Role: wire.RoleReceiver, First: *t.DeliveryID, Settled: true, State: &wire.Modified{DeliveryFailed: ptr(true)}}
			if err := c.Send(0, d); err != nil {
				return err
			}
		}
	})
}

// returnable creates a queue whose messages may fail forever.
func returnable(a *abuseRun) {
	createOwn("queues/"+returnQueue, harness.Fields{"maxDeliveryCount": 1 << 30, "lockDuration": "5m"})(a)
	if err := a.fill(returnQueue, 2000, rawamqp.Message(make([]byte, 1000))); err != nil {
		a.t.Fatal(err)
	}
}

// selectMuch receives from a long queue with selectors that select nothing, with a key that may receive only.
func selectMuch(ctx context.Context, at *target) error {
	selector := "a LIKE '%" + strings.Repeat("_", 900) + "b'"
	return at.swarm(ctx, at.attackers(8, 48), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		go discard(c)
		handle := uint32(0)
		return every(ctx, requestPace, func() error {
			if handle == 100 {
				return nil
			}
			a := rawamqp.Receiver(handle, unsettledQueue)
			const key = wire.Symbol("apache.org:selector-filter:string")
			a.Source.Filter = wire.Map{{Key: key, Value: wire.Described{Descriptor: key, Value: fmt.Sprintf("%s OR b = '%d-%d'", selector, i, handle)}}}
			credit := rawamqp.Credit(handle, 100)
			credit.Drain = i%2 == 0
			handle++
			at.countHit()
			return c.Send(0, a, credit)
		})
	})
}

// consumeTopics attaches receivers at a topic, each of which gets a subscription of its own, and detaches them at once.
func consumeTopics(ctx context.Context, at *target) error {
	return at.swarm(ctx, at.attackers(8, 24), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		go discard(c)
		round := uint32(0)
		return every(ctx, requestPace, func() error {
			at.countHit()
			a := rawamqp.Receiver(round%64, churnTopic)
			a.Name, a.Source.Capabilities = fmt.Sprintf("consumer-%d-%d", i, round), []wire.Symbol{"topic"}
			round++
			return c.Send(0, a, &wire.Detach{Handle: a.Handle, Closed: true})
		})
	})
}

// churnEntities creates and deletes entities over HTTP, with the key of a namespace.
func churnEntities(ctx context.Context, at *target) error {
	http11 := &target{amqp: at.admin, sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http11.hits.Load()) }()
	token := auth.Sign("http://"+ownHost+"/", ownKey, ownSecret, time.Now().Add(time.Hour))
	return http11.paced(ctx, at.attackers(12, churnMax), requestPace, func(ctx context.Context, i, round int) error {
		method := http.MethodPut
		if round%2 == 0 {
			method = http.MethodDelete
		}
		_, err := http11.request(ctx, http11.amqp[i%len(http11.amqp)], fmt.Sprintf("%s /v1/queues/churn-%d HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nConnection: close\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}",
			method, i, ownHost, token))
		return err
	})
}

// deleteChurned deletes what churnEntities has left.
func deleteChurned(a *abuseRun) {
	for i := range churnMax {
		_ = a.Members[0].Call(a.t.Context(), http.MethodDelete, ownPath(fmt.Sprintf("queues/churn-%d", i)), nil, nil) // it may be gone
	}
}

// askFromPages asks what a web page may ask without a key: preflights, files of the console, upgrades with a foreign origin.
func askFromPages(ctx context.Context, at *target) error {
	http11 := &target{amqp: append(append([]string{}, at.amqp...), at.admin...), sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http11.hits.Load()) }()
	const origin = "Host: localhost\r\nOrigin: https://evil.example\r\n"
	requests := strings.Repeat("OPTIONS /v1/queues HTTP/1.1\r\n"+origin+"Access-Control-Request-Method: PUT\r\n\r\n"+
		"GET "+consolePage+" HTTP/1.1\r\n"+origin+"\r\n"+
		"POST /honest/messages HTTP/1.1\r\n"+origin+"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi", 10)
	return http11.paced(ctx, at.attackers(12, 96), requestPace, func(ctx context.Context, i, round int) error {
		conn, err := http11.dial(ctx, http11.amqp[i%len(http11.amqp)])
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(shortAttack))
		text := requests
		if round%4 == 0 {
			text = strings.Replace(upgradeRequest, "Host: localhost\r\n", origin, 1) + "\r\n"
		}
		for range 20 {
			http11.countHit()
			if _, err := io.WriteString(conn, text); err != nil || ended(ctx) {
				return nil
			}
		}
		sleep(ctx, shortAttack)
		return nil
	})
}

// gossipMuch opens connections to the ports of gossip and of peers, which have no TLS here, and sends datagrams that mean nothing.
func gossipMuch(ctx context.Context, at *target) error {
	ports := &target{amqp: append(append([]string{}, at.gossip...), at.peer...), sink: at.sink, full: at.full}
	defer func() { at.hits.Add(ports.hits.Load()) }()
	garbage := binary.BigEndian.AppendUint64(make([]byte, 0, 1400), ^uint64(0))
	return ports.swarm(ctx, at.attackers(200, 800), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		ports.countHit()
		if i%2 == 0 {
			return waitClosed(c)
		}
		udp, err := new(net.Dialer).DialContext(ctx, "udp", ports.amqp[i%len(ports.amqp)])
		if err != nil {
			return err
		}
		defer func() { _ = udp.Close() }()
		return every(ctx, requestPace, func() error {
			garbage := append(garbage, byte(i))
			garbage[0] = byte(i) // each type of message
			_, _ = udp.Write(garbage)
			_, err := c.Write(garbage[:1])
			return err
		})
	})
}
