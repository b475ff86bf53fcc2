package abuse

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Guessing credentials.

const guessPace = 20 * time.Millisecond // between two guesses of one attacker

var errGuessed = errors.New("a guess was right")

// paced runs n attackers that call do at a pace.
func (at *target) paced(ctx context.Context, n int, pace time.Duration, do func(ctx context.Context, i, round int) error) error {
	var running sync.WaitGroup
	var first error
	var once sync.Once
	for i := range n {
		running.Go(func() {
			round := 0
			err := every(ctx, pace, func() error {
				round++
				return do(ctx, i, round)
			})
			if err != nil && ctx.Err() == nil {
				once.Do(func() { first = err })
			}
		})
	}
	running.Wait()
	return first
}

// guessKeys signs in with wrong keys under existing names, including that of the honest clients,
// and half of the time from their address.
func guessKeys(ctx context.Context, at *target) error {
	names := []string{harness.KeyName, harness.SendKeyName, harness.ListenKeyName, "nobody"}
	return at.paced(ctx, at.attackers(16, 48), guessPace, func(ctx context.Context, i, round int) error {
		guess := func(c *rawamqp.Conn) error {
			at.countHit()
			c.Host = "" // that of honest clients
			return c.Login(names[i%len(names)], fmt.Sprintf("guess %d of %d", round, i))
		}
		address := at.amqp[i%len(at.amqp)]
		try := func() error { return at.connect(ctx, address, guess) }
		if round%2 == 0 {
			try = func() error {
				c, err := rawamqp.Dial(ctx, address)
				if err != nil {
					return err
				}
				c.SendOnly = at.sink
				return errors.Join(guess(c), c.Close())
			}
		}
		if try() == nil && !at.sink {
			return errGuessed
		}
		return nil
	})
}

// guessTokens does the same over HTTP, with tokens whose signature is wrong.
func guessTokens(ctx context.Context, at *target) error {
	http := &target{amqp: at.admin, sink: at.sink, full: at.full}
	defer func() { at.hits.Add(http.hits.Load()) }()
	return http.paced(ctx, at.attackers(16, 48), guessPace, func(ctx context.Context, i, round int) error {
		address := http.amqp[i%len(http.amqp)]
		token := auth.Sign("http://"+address+"/", harness.KeyName, fmt.Sprintf("guess %d of %d", round, i), time.Now().Add(time.Hour))
		request := fmt.Sprintf("GET /%s?api-version=2021-05 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAuthorization: %s\r\n\r\n", url.PathEscape(honestQueue), address, token)
		answer, err := http.request(ctx, address, request)
		if strings.HasPrefix(answer, "HTTP/1.1 2") {
			return errGuessed
		}
		return err
	})
}
