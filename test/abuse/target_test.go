package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/rawamqp"
)

const (
	redialDelay  = 100 * time.Millisecond // of an attacker whose connection has ended
	dialPace     = time.Millisecond       // between two connections of all attackers together
	attackerHost = "127.0.0.2"            // address that attackers come from
	filesAssumed = 4096                   // that a process may open where the system does not say
)

// attack is one kind of attack on a member.
type attack struct {
	name  string // as in the table
	limit string // what stops it
	// sinkAnswersSooner: its attackers mostly wait for late answers, and a sink ends each attempt at once, so that they
	// make many more and occupy the machine. Honest clients are compared with no attack at all.
	sinkAnswersSooner bool
	promised          time.Duration // that honest sends may take in any case; 0: nothing
	always            bool          // also in a plain `go test ./...`, which makes few attacks
	// prepare creates the entities that it needs; nil: none.
	prepare func(*abuseRun)
	// run attacks until ctx ends. An error means that the attack could not be made at all.
	run func(ctx context.Context, at *target) error
	// clean removes the entities of prepare and run; nil: nothing.
	clean func(*abuseRun)
}

// target is the target of attackers: the members of a cluster, or a sink.
type target struct {
	amqp  []string // host:port for AMQP clients, which also take HTTP and TLS
	admin []string // host:port of the control API
	// gossip and peer are the ports for members; empty: there are none.
	gossip, peer []string
	sink         bool // it answers nothing
	full         bool // the size of `make abuse`, not of CI
	hits         atomic.Int64
}

// attackers returns the number of attackers, limited by the number of files that a process may open.
func (at *target) attackers(short, full int) int {
	if !at.full {
		return short
	}
	return min(full, filesMax()/2)
}

// countHit counts one action against the target, so that an attack that does nothing is detected.
func (at *target) countHit() { at.hits.Add(1) }

// swarm runs n attackers in parallel, each on its own connection to one of the members in
// turn. An attacker whose connection has ended starts again after redialDelay, until ctx ends; all
// together connect at most at dialPace. It returns an error when no attacker did anything.
func (at *target) swarm(ctx context.Context, n int, one func(context.Context, int, *rawamqp.Conn) error) error {
	var running sync.WaitGroup
	var first error
	var once sync.Once
	before := at.hits.Load()
	dials := time.NewTicker(dialPace)
	defer dials.Stop()
	turn := func() bool {
		select {
		case <-ctx.Done():
			return false
		case <-dials.C:
			return true
		}
	}
	for i := range n {
		running.Go(func() {
			for turn() {
				if err := at.connect(ctx, at.amqp[i%len(at.amqp)], func(c *rawamqp.Conn) error { return one(ctx, i, c) }); err != nil && ctx.Err() == nil {
					once.Do(func() { first = err })
				}
				sleep(ctx, redialDelay)
			}
		})
	}
	running.Wait()
	if at.hits.Load() == before {
		return fmt.Errorf("no attacker did anything: %w", first)
	}
	return nil
}

// connect opens a connection, runs one attacker on it, and closes it.
func (at *target) connect(ctx context.Context, address string, one func(*rawamqp.Conn) error) error {
	conn, err := at.dial(ctx, address)
	if err != nil {
		return err
	}
	c := rawamqp.New(ctx, conn)
	c.SendOnly, c.Host = at.sink, ownHost
	defer func() { _ = c.Close() }()
	return one(c)
}

// dial opens a TCP connection from the attackers' address.
func (at *target) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if runtime.GOOS == "linux" { // other systems have one loopback address only
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(attackerHost)}
		d.Control = shareLocalPorts
	}
	return d.DialContext(ctx, "tcp", address)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ended reports whether ctx has ended.
func ended(ctx context.Context) bool { return ctx.Err() != nil }

// every calls do at an interval until ctx ends or do fails: attackers have a fixed pace, so that
// they use the same share of the machine whatever their target is.
func every(ctx context.Context, interval time.Duration, do func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// discard reads what the member sends, and returns when it has closed the connection.
func discard(c *rawamqp.Conn) { _, _ = io.Copy(io.Discard, c) }

// waitClosed waits until the member closes the connection, or ctx ends, which closes it.
func waitClosed(c *rawamqp.Conn) error {
	discard(c)
	return nil
}

func ptr[T any](v T) *T { return &v }

// openFrame is the open frame of an attacker.
func openFrame() *wire.Open {
	return &wire.Open{ContainerID: "attacker", Hostname: ptr(ownHost), MaxFrameSize: ptr(uint32(65536)), ChannelMax: ptr(uint16(65535))}
}

// signIn opens a connection with a key of the attackers' namespace: sendKey, listenKey or ownKey.
func signIn(c *rawamqp.Conn, key string) error {
	return errors.Join(c.Login(key, ownSecret), c.Open(openFrame()))
}
