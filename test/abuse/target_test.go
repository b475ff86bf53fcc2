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
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

const (
	redialDelay  = 100 * time.Millisecond // of an attacker whose connection has ended
	dialPace     = time.Millisecond       // between two connections of all attackers together
	attackerHost = "127.0.0.2"            // address that attackers come from
	filesAssumed = 4096                   // that a process may open where the system does not say
)

// attack is one way to harm a member.
type attack struct {
	name   string // as in the table
	limit  string // what stops it
	always bool   // also in a plain `go test ./...`, which makes few attacks
	// prepare makes the entities that it needs; nil: none.
	prepare func(*abuseRun)
	// run attacks until ctx ends. An error means that the attack could not be made at all.
	run func(ctx context.Context, at *target) error
	// clean removes what prepare and run have left in entities; nil: nothing.
	clean func(*abuseRun)
}

// target is what attackers aim at: the members of a cluster, or a sink.
type target struct {
	amqp  []string // host:port for AMQP clients, which also take HTTP and TLS
	admin []string // host:port of the control API
	sink  bool     // nothing is answered
	full  bool     // the size of `make abuse`, not of CI
	hits  atomic.Int64
}

// attackers is the number of attackers of one kind; fewer where a process may not open as many files.
func (at *target) attackers(short, full int) int {
	if !at.full {
		return short
	}
	return min(full, filesMax()/2)
}

// countHit counts one thing done to the target, so that an attack that does nothing is noticed.
func (at *target) countHit() { at.hits.Add(1) }

// swarm runs n attackers at once, each on a connection of its own to one of the members in
// turn. One whose connection has ended begins again after redialDelay, until ctx ends; all
// together connect at dialPace at most. It returns an error when none of them ever did anything.
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
		return fmt.Errorf("no attacker got anywhere: %w", first)
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
	c.SendOnly = at.sink
	defer func() { _ = c.Close() }()
	return one(c)
}

// dial opens a TCP connection from the address of the attackers.
func (at *target) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if runtime.GOOS == "linux" { // other systems have one loopback address only
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(attackerHost)}
	}
	return d.DialContext(ctx, "tcp", address)
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ended says whether ctx has.
func ended(ctx context.Context) bool { return ctx.Err() != nil }

// every calls do at an interval until ctx ends or do fails: attackers keep to a pace, so that
// they take the same share of the machine whatever they aim at.
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

// discard reads whatever the member sends, and returns when it has ended the connection.
func discard(c *rawamqp.Conn) { _, _ = io.Copy(io.Discard, c) }

// waitClosed waits until the member ends the connection, or ctx ends, which closes it.
func waitClosed(c *rawamqp.Conn) error {
	discard(c)
	return nil
}

func ptr[T any](v T) *T { return &v }

// openFrame is the open of an attacker.
func openFrame() *wire.Open {
	return &wire.Open{ContainerID: "attacker", Hostname: ptr("localhost"), MaxFrameSize: ptr(uint32(65536)), ChannelMax: ptr(uint16(65535))}
}

// signIn opens a connection with the key that may send only, or the one that may receive only.
func signIn(c *rawamqp.Conn, key string) error {
	return errors.Join(c.Login(key, harness.Key), c.Open(openFrame()))
}
