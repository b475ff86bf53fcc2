package connlimit

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// Errors of Limiter.Add.
var (
	ErrTotal     = errors.New("too many connections")
	ErrPerSource = errors.New("too many connections from one address")
)

// Limiter counts open connections. It is safe for concurrent use.
type Limiter struct {
	totalMax     int // connections
	perSourceMax int // connections of one source; 0: no limit

	mu        sync.Mutex
	total     int
	sources   map[netip.Addr]*counts // no entries without connections
	evictable *list.List             // of *Conn, the oldest first
}

// counts are the connections of one source.
type counts struct{ open, evictable int }

// Conn is a counted connection. Its methods are safe for concurrent use.
type Conn struct {
	limiter *Limiter
	evict   func()

	// The rest is guarded by the mutex of the Limiter.
	source  netip.Addr
	element *list.Element // in evictable; nil once protected or removed
	active  bool
	removed bool
}

// New returns a Limiter for at most totalMax connections (at least 1), of which one source has at most perSourceMax.
// With perSourceMax 0, and for connections without an IP address, only totalMax applies.
func New(totalMax, perSourceMax int) *Limiter {
	return &Limiter{totalMax: totalMax, perSourceMax: perSourceMax, sources: make(map[netip.Addr]*counts), evictable: list.New()}
}

// Add counts a connection from addr until Conn.Remove, or returns ErrPerSource or ErrTotal. If there are totalMax
// connections, it evicts one of the source that has the most, with the new one: the oldest that is not active, and if
// all are active the newest. Protected connections are neither evicted nor compared. If that connection is the
// new one, or all are protected, Add returns ErrTotal.
//
// Eviction ends the counting of a connection and calls its evict, which has to close it. evict must not block; the
// caller of the other Add runs it.
func (l *Limiter) Add(addr net.Addr, evict func()) (*Conn, error) {
	c, victim, err := l.add(Source(addr), evict)
	if victim != nil {
		victim.evict()
	}
	return c, err
}

func (l *Limiter) add(source netip.Addr, evict func()) (c, victim *Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sources[source]; s != nil && source.IsValid() && l.perSourceMax > 0 && s.open >= l.perSourceMax {
		return nil, nil, ErrPerSource
	}
	c = &Conn{limiter: l, evict: evict, source: source}
	c.element = l.evictable.PushBack(c)
	l.count(c)
	l.total++
	if l.total <= l.totalMax {
		return c, nil, nil
	}
	victim = l.victim()
	l.remove(victim)
	if victim == c {
		return nil, nil, ErrTotal
	}
	return c, victim, nil
}

// victim returns the connection to evict; there is one at least, the newest. mu is held.
func (l *Limiter) victim() *Conn {
	most := 0
	for _, s := range l.sources {
		most = max(most, s.evictable)
	}
	var newest *Conn
	for e := l.evictable.Front(); e != nil; e = e.Next() {
		c := e.Value.(*Conn) //nolint:forcetypeassert // nothing else is put in
		if l.sources[c.source].evictable != most {
			continue
		}
		if !c.active {
			return c
		}
		newest = c
	}
	return newest
}

// count adds a connection to the counts of its source. mu is held.
func (l *Limiter) count(c *Conn) {
	s := l.sources[c.source]
	if s == nil {
		s = new(counts)
		l.sources[c.source] = s
	}
	s.open++
	if c.element != nil {
		s.evictable++
	}
}

// uncount reverts count. mu is held.
func (l *Limiter) uncount(c *Conn) {
	s := l.sources[c.source]
	if c.element != nil {
		s.evictable--
	}
	if s.open--; s.open == 0 {
		delete(l.sources, c.source)
	}
}

// protect removes a connection from those that may be evicted. mu is held, and the connection is counted.
func (l *Limiter) protect(c *Conn) {
	if c.element == nil {
		return
	}
	l.sources[c.source].evictable--
	l.evictable.Remove(c.element)
	c.element = nil
}

// remove stops counting a connection. mu is held, and the connection is counted.
func (l *Limiter) remove(c *Conn) {
	l.protect(c)
	l.uncount(c)
	l.total--
	c.removed = true
}

// Len returns the number of connections.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Sources returns the number of addresses that have connections.
func (l *Limiter) Sources() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sources)
}

// EvictAll evicts all connections that are not protected, for a server that closes.
func (l *Limiter) EvictAll() {
	for c := l.removeOldest(); c != nil; c = l.removeOldest() {
		c.evict()
	}
}

// removeOldest stops counting the oldest connection that is not protected, and returns it; nil if there is none.
func (l *Limiter) removeOldest() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.evictable.Front()
	if e == nil {
		return nil
	}
	c := e.Value.(*Conn) //nolint:forcetypeassert // nothing else is put in
	l.remove(c)
	return c
}

// Remove stops counting the connection. It returns false if it was removed or evicted before.
func (c *Conn) Remove() bool {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.removed {
		return false
	}
	c.limiter.remove(c)
	return true
}

// Protect exempts the connection from eviction, for good.
func (c *Conn) Protect() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if !c.removed {
		c.limiter.protect(c)
	}
}

// SetActive records whether the connection serves a request.
func (c *Conn) SetActive(active bool) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.active = active
}

// SetSource counts the connection for another address from now on, that of the client behind a proxy.
func (c *Conn) SetSource(addr net.Addr) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.removed {
		return
	}
	c.limiter.uncount(c)
	c.source = Source(addr)
	c.limiter.count(c)
}
