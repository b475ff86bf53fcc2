package peer

import (
	"net"
	"net/netip"
	"testing"
)

// addressedConn is a connection from an address.
type addressedConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *addressedConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}
func (c *addressedConn) Close() error { c.closed = true; return nil }

// A connection finds a place whatever others hold: silent ones of the address with the most give way first, then the oldest.
// Unknown addresses never take the places of members.
func TestHandshakesGiveWay(t *testing.T) {
	t.Parallel()
	const member, nat = "192.0.2.1", "192.0.2.9"
	p := &places{known: func(a netip.Addr) bool { return a.String() == member }}
	open := func(from string) (*addressedConn, *placed) {
		t.Helper()
		conn := &addressedConn{from: from}
		place, ok := p.add(conn)
		if !ok {
			t.Fatalf("no place for %s", from)
		}
		return conn, place
	}
	one, slow := open("198.51.100.7")
	p.start(slow)
	var scan []*addressedConn
	for range 400 {
		c, _ := open(nat)
		scan = append(scan, c)
	}
	open399, left := 0, 0
	for _, c := range scan {
		if !c.closed {
			open399++
		}
	}
	if open399 != unknownHandshakesMax-1 || one.closed || len(p.running) != unknownHandshakesMax {
		t.Errorf("%d of the scan are left, %d in all; another address was closed: %v", open399, len(p.running), one.closed)
	}
	var members []*placed
	for range 300 { // behind the address of a member, most of them attackers that have sent something
		_, place := open(member)
		p.start(place)
		members = append(members, place)
	}
	for _, c := range scan {
		if !c.closed {
			left++
		}
	}
	if len(p.running) != handshakesMax || left != 0 {
		t.Errorf("%d are running, %d of the scan", len(p.running), left)
	}
	if last := members[len(members)-1]; last.evicted || !members[0].evicted || !p.remove(last) || p.remove(members[0]) {
		t.Error("not the oldest has given way")
	}
	unknown := &addressedConn{from: "203.0.113.1"}
	if _, ok := p.add(unknown); !ok || len(p.running) != handshakesMax {
		t.Errorf("a place is free: %v, %d are running", ok, len(p.running))
	}
	again := &addressedConn{from: "203.0.113.1"}
	if _, ok := p.add(again); !ok || !unknown.closed { // it takes the place of another unknown address, not of a member
		t.Errorf("%v, the first connection of an unknown address was closed: %v", ok, unknown.closed)
	}
	none := &places{known: p.known}
	for range handshakesMax {
		if _, ok := none.add(&addressedConn{from: member}); !ok {
			t.Fatal("no place for a member")
		}
	}
	if _, ok := none.add(&addressedConn{from: nat}); ok {
		t.Error("an unknown address has taken the place of a member")
	}
}
