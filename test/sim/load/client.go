package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	reconnectAfter = 100 * time.Millisecond // between two looks for a member that runs
	requestWithin  = time.Minute            // of one that waits itself
)

// client uses the router of one member, as a gateway does for a connection, and goes to another member when the
// process has ended.
type client struct {
	cluster *Cluster
	name    string
	rand    *rand.Rand
	at      int // number of the member
	links   int // that it has opened
}

func newClient(to *Cluster, seed uint64, number int, name string) *client {
	r := rand.New(rand.NewPCG(seed, uint64(number)+1))
	return &client{cluster: to, name: fmt.Sprintf("%s-%d", name, number), rand: r, at: r.IntN(to.Members)}
}

// process returns a process that runs; nil when ctx has ended.
func (c *client) process(ctx context.Context) *Process {
	for ctx.Err() == nil {
		if p := c.cluster.Running(c.at); p != nil {
			return p
		}
		c.at = (c.at + 1) % c.cluster.Members
		sleep(reconnectAfter)
	}
	return nil
}

// think waits for a random time that is mean on average; it returns false when ctx has ended.
func (c *client) think(ctx context.Context, mean time.Duration) bool {
	return c.pause(ctx, time.Duration(c.rand.ExpFloat64()*float64(mean)))
}

// pause waits for a time; it returns false when ctx has ended.
func (c *client) pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask calls start with a function that takes the answer. It returns false when the process ended before the
// answer: then no client has got it, and what was requested may have been done.
func ask[A any](p *Process, start func(answer func(A))) (got A, heard bool) {
	answers := make(chan A, 1)
	start(func(a A) { answers <- a })
	select {
	case got = <-answers:
	case <-p.Ended:
	}
	return got, !p.HasEnded()
}

// await is ask for a function that waits itself, for a while.
func await[A any](p *Process, call func(context.Context) A) (got A, heard bool) {
	return ask(p, func(answer func(A)) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), requestWithin)
			defer cancel()
			answer(call(ctx))
		}()
	})
}

// send sends messages.
func send(p *Process, at fsm.EntityRef, messages []fsm.Message) (fsm.Code, bool) {
	return ask(p, func(answer func(fsm.Code)) { p.Node.Router().Send(at, messages, answer) })
}

// settle settles one delivery.
func settle(p *Process, at fsm.EntityRef, s fsm.Settlement) (fsm.Code, bool) {
	codes, heard := ask(p, func(answer func([]fsm.Code)) { p.Node.Router().Settle(at, []fsm.Settlement{s}, answer) })
	if !heard {
		return fsm.Timeout, false
	}
	return codes[0], true
}

// isUnknown reports whether a code leaves open whether the request was performed.
func isUnknown(c fsm.Code) bool { return c == fsm.Timeout || c == fsm.Internal }

// sleep waits in virtual time, which costs nothing.
func sleep(length time.Duration) { <-time.After(length) }
