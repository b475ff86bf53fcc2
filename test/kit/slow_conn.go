package kit

import (
	"net"
	"os"
	"sync"
	"time"
)

// slowChunkBytes is what a slow connection writes at a time.
const slowChunkBytes = 32 << 10

// SlowConn returns conn with its writes limited to a number of bytes per second. Write deadlines hold; the other
// methods are those of conn.
func SlowConn(conn net.Conn, bytesPerSecond int) net.Conn {
	return &slowConn{Conn: conn, perSecond: bytesPerSecond}
}

type slowConn struct {
	net.Conn
	perSecond int

	mu       sync.Mutex
	free     time.Time // when the bytes written so far have left
	deadline time.Time // of writes, zero for none
}

func (c *slowConn) SetDeadline(t time.Time) error {
	c.setWriteDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *slowConn) SetWriteDeadline(t time.Time) error {
	c.setWriteDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *slowConn) setWriteDeadline(t time.Time) {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
}

func (c *slowConn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		chunk := p[n:min(n+slowChunkBytes, len(p))]
		c.mu.Lock()
		now := time.Now()
		if c.free.Before(now) {
			c.free = now
		}
		c.free = c.free.Add(time.Duration(len(chunk)) * time.Second / time.Duration(c.perSecond))
		wait, late := c.free.Sub(now), !c.deadline.IsZero() && c.free.After(c.deadline)
		c.mu.Unlock()
		<-time.After(wait)
		if late {
			return n, os.ErrDeadlineExceeded
		}
		sent, err := c.Conn.Write(chunk)
		n += sent
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
