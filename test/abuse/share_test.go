package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Requests that are small, and ask for much to be held or stored.

const (
	idleQueue       = "abuse-idle"
	idleLinks       = 1400             // receivers of one connection
	scrapePace      = time.Millisecond // of one attacker
	lockTokensMax   = 4096             // of one request
	propertiesBytes = 62_000           // of one settlement: almost as many as are allowed
	rangeQueue      = "abuse-range"
	rangeCount      = 500 // deliveries of one disposition
)

// settleWithProperties names as many locks in a request as are allowed, and properties that each message would get.
func settleWithProperties(ctx context.Context, at *target) error {
	tokens := make([]wire.UUID, lockTokensMax)
	for i := range tokens {
		tokens[i][14], tokens[i][15] = byte(i>>8), byte(i)
	}
	return settleTokens(ctx, at, tokens)
}

// settleOneToken names one lock as many times.
func settleOneToken(ctx context.Context, at *target) error {
	return settleTokens(ctx, at, make([]wire.UUID, lockTokensMax))
}

func settleTokens(ctx context.Context, at *target, tokens []wire.UUID) error {
	request := nodeRequest(wire.Map{{Key: "operation", Value: "com.microsoft:update-disposition"}}, wire.Map{
		{Key: "disposition-status", Value: "abandoned"},
		{Key: "lock-tokens", Value: wire.Array{Values: tokens}},
		{Key: "properties-to-modify", Value: wire.Map{{Key: "p", Value: strings.Repeat("x", propertiesBytes/2)}, {Key: "q", Value: strings.Repeat("x", propertiesBytes/2)}}},
	})
	return at.swarm(ctx, at.attackers(12, 48), func(ctx context.Context, i int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		return at.floodNode(ctx, c, idleQueue+"/$management", i%2 == 0, 1, [][]byte{request})
	})
}

// settleRange receives many messages, and settles all with one disposition that has properties for each.
func settleRange(ctx context.Context, at *target) error {
	modified := &wire.Modified{DeliveryFailed: ptr(true), MessageAnnotations: wire.Map{
		{Key: wire.Symbol("p"), Value: strings.Repeat("x", propertiesBytes/2)}, {Key: wire.Symbol("q"), Value: strings.Repeat("x", propertiesBytes/2-100)},
	}}
	return at.swarm(ctx, at.attackers(8, 24), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := attachReceiver(c, rangeQueue); err != nil {
			return err
		}
		if at.sink {
			go discard(c)
		}
		for first := uint32(0); !ended(ctx); first += rangeCount {
			for n := 0; n < rangeCount && !at.sink; n++ {
				if _, err := rawamqp.Expect[*wire.Transfer](c); err != nil {
					return err
				}
			}
			at.countHit()
			if err := c.Send(0, &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: ptr(first + rangeCount - 1), Settled: true, State: modified}); err != nil {
				return err
			}
			sleep(ctx, requestPace)
		}
		return nil
	})
}

// waitIdle attaches very many receivers to an empty queue. They do nothing but wait.
func waitIdle(ctx context.Context, at *target) error {
	links := 100
	if at.full {
		links = idleLinks
	}
	return at.swarm(ctx, at.attackers(12, 48), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := signIn(c, listenKey); err != nil {
			return err
		}
		go discard(c)
		for handle := range uint32(links) {
			if err := errors.Join(c.Send(0, rawamqp.Receiver(handle, idleQueue)), c.Send(0, rawamqp.Credit(handle, 10))); err != nil {
				return err
			}
			at.countHit()
		}
		<-ctx.Done()
		return nil
	})
}

// scrapeAtFullRate asks for /metrics without a key, some without reading the answers.
func scrapeAtFullRate(ctx context.Context, at *target) error {
	http11 := &target{amqp: at.admin, sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http11.hits.Load()) }()
	return http11.paced(ctx, at.attackers(12, 48), scrapePace, func(ctx context.Context, i, _ int) error {
		conn, err := http11.dial(ctx, http11.amqp[i%len(http11.amqp)])
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(answerWithin))
		for range 100 {
			http11.countHit()
			if _, err := fmt.Fprintf(conn, "%s /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", http.MethodGet); err != nil || ended(ctx) {
				return nil
			}
			if i%2 == 0 && !at.sink {
				_, _ = io.CopyN(io.Discard, conn, 4<<10)
			}
		}
		sleep(ctx, shortAttack)
		return nil
	})
}
