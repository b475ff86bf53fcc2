package harness

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Doomed is a member that is going to die, behind an address that leads to the first member
// of the cluster afterwards, as the balancer before a cluster does. It holds nothing, so
// that its death disturbs its clients alone. Its methods are for the goroutine of the test.
type Doomed struct {
	Address string // for clients, before and after the death
	member  *Member
	target  atomic.Pointer[string]
}

// Doomed starts such a member, or the last one again. One lives at a time.
func (c *Cluster) Doomed(t testing.TB) *Doomed {
	t.Helper()
	var d Doomed
	if len(c.joined) == 0 {
		d.member = c.Join(t)
	} else {
		d.member = c.joined[0]
		d.member.Kill()
		d.member.Start()
		d.member.WaitReady()
	}
	d.target.Store(&d.member.AMQP)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.Address = listener.Addr().String()
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relay(near, *d.target.Load()) })
		}
	})
	c.t.Cleanup(func() {
		// Members have ended by then or are about to, and with them what leads to them.
		_ = listener.Close()
	})
	return &d
}

// Kill ends the member as a power cut would. Who comes to the address now finds the first
// member of the cluster.
func (d *Doomed) Kill(c *Cluster) {
	d.target.Store(&c.Members[0].AMQP)
	d.member.Kill()
}

// relay joins a connection to another until either ends.
func relay(near net.Conn, address string) {
	far, err := net.Dial("tcp", address)
	if err != nil {
		_ = near.Close()
		return
	}
	var both sync.WaitGroup
	for one, other := range map[net.Conn]net.Conn{near: far, far: near} {
		both.Go(func() {
			_, err := io.Copy(one, other)
			_ = errors.Join(err, one.Close(), other.Close())
		})
	}
	both.Wait()
}
