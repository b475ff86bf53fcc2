package harness

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// Killable is a member that a test kills, behind an address that leads to the first member
// of the cluster afterwards, as a load balancer does. It holds no partition, so
// that its failure affects only its clients. Its methods are for the goroutine of the test.
type Killable struct {
	Address string // for clients, before and after the kill
	member  *Member
	target  atomic.Pointer[string]
}

// StartKillable starts such a member, or the last one again. At most one runs at a time.
func (c *Cluster) StartKillable(t testing.TB) *Killable {
	t.Helper()
	var d Killable
	if len(c.joined) == 0 {
		d.member = c.Join(t)
	} else {
		d.member = c.joined[0]
		d.member.Kill()
		d.member.Start()
		d.member.WaitReady()
	}
	d.target.Store(&d.member.AMQP)
	d.Address = Relay(c.t, "127.0.0.1:0", func() string { return *d.target.Load() })
	return &d
}

// Kill ends the member as a power failure would. From now on the address leads to the first
// member of the cluster.
func (d *Killable) Kill(c *Cluster) {
	d.target.Store(&c.Members[0].AMQP)
	d.member.Kill()
}

// Relay listens at an address, copies between each connection and a new one to target until either ends, and returns
// the address with its port. It listens until the test ends; the connections end when their members do.
func Relay(t testing.TB, address string, target func() string) string {
	t.Helper()
	listener := kit.Must(net.Listen("tcp", address))(t)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(client, target())
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// relay copies between a connection and a new one to address until either ends.
func relay(client net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		_ = client.Close()
		return
	}
	var both sync.WaitGroup
	for one, other := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			_, err := io.Copy(one, other)
			_ = errors.Join(err, one.Close(), other.Close())
		})
	}
	both.Wait()
}
