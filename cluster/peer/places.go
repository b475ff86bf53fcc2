package peer

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// places are the places of the handshakes that are running. A new connection always finds one, unless all are held by addresses
// of members and it comes from another one: when there are none left, the connection that has sent nothing for the longest time,
// or else the oldest, is closed for the new one. It is one of the address that holds the most, and one of an address that is no
// member's before all others. So neither silent nor slow connections keep a member out, even if they come from its own
// address, as behind a NAT.
type places struct {
	known func(netip.Addr) bool // whether gossip knows a member at this address; nil: none

	mu      sync.Mutex
	running []*placed // the oldest first
}

// placed is a connection whose handshake is running.
type placed struct {
	net.Conn

	from    netip.Addr
	known   bool
	started bool // it has sent something
	evicted bool
}

// add gives the connection a place. It returns false if there is none.
func (p *places) add(conn net.Conn) (*placed, bool) {
	c := &placed{Conn: conn}
	if from, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		c.from = from.Addr().Unmap()
	}
	c.known = p.known != nil && p.known(c.from)
	p.mu.Lock()
	defer p.mu.Unlock()
	total, unknown := len(p.running), 0
	for _, other := range p.running {
		if !other.known {
			unknown++
		}
	}
	if total >= handshakesMax || !c.known && unknown >= unknownHandshakesMax {
		victim := p.victim(!c.known || unknown > 0)
		if victim < 0 {
			return nil, false
		}
		other := p.running[victim]
		other.evicted = true
		p.running = slices.Delete(p.running, victim, victim+1)
		_ = other.Close()
	}
	p.running = append(p.running, c)
	return c, true
}

// victim returns the index of the connection to close, -1 for none. mu is held.
func (p *places) victim(unknown bool) int {
	counts := make(map[netip.Addr]int)
	most := 0
	for _, c := range p.running {
		if c.known != unknown {
			counts[c.from]++
			most = max(most, counts[c.from])
		}
	}
	oldest := -1
	for i, c := range p.running {
		switch {
		case c.known == unknown || counts[c.from] < most:
		case !c.started:
			return i
		case oldest < 0:
			oldest = i
		}
	}
	return oldest
}

// start records that the connection has sent something.
func (p *places) start(c *placed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.started = true
}

// remove frees the place of a connection whose handshake has ended. It returns false if the connection was closed for another one.
func (p *places) remove(c *placed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.evicted {
		return false
	}
	p.running = slices.DeleteFunc(p.running, func(other *placed) bool { return other == c })
	return true
}

// startedConn is a connection whose first byte has been read.
type startedConn struct {
	net.Conn

	first []byte // empty once it was read again
}

// awaitStart waits until the peer sends something, and returns a connection from which all of it can be read.
func awaitStart(conn net.Conn) (net.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(silentTimeout)); err != nil {
		return nil, err
	}
	first := make([]byte, 1)
	if _, err := conn.Read(first); err != nil {
		return nil, err
	}
	return &startedConn{Conn: conn, first: first}, nil
}

// Read implements net.Conn.
func (c *startedConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		b[0], c.first = c.first[0], nil
		return 1, nil
	}
	return c.Conn.Read(b)
}
