package listen

import (
	"net"
	"runtime"
	"sync"
	"time"
)

// Bytes of a WebSocket connection that carry nothing: headers of fragments, empty fragments, pings. A peer that sends
// more is read later. An AMQP frame has 8 bytes at least, and a message or fragment a header of 6 to 14 bytes: a peer
// that sends whole frames never waits.
const (
	bytesPerPayloadByte = 2         // bytes that each byte of payload entitles to, itself included
	emptyBytesPerSecond = 2 * 1024  // further ones
	emptyBytesBurst     = 16 * 1024 // further ones without delay; more than payloadReadBytesMax and the read buffer
	emptyBytesForgotten = time.Second / emptyBytesPerSecond

	// payloadReadBytesMax bounds a read of payload, which counts as payload when it is complete: until then, its bytes
	// count as bytes that carry nothing.
	payloadReadBytesMax = 8 * 1024
)

// pacedConn is a connection that carries a WebSocket. It delays a peer whose messages have little payload: a fragment
// of one byte, or a ping, costs the member as much as one of kilobytes.
//
// Read and carried are called by the goroutine that reads the WebSocket, and Read by the one that closes it, too.
type pacedConn struct {
	net.Conn
	stopped  chan struct{} // closed by stopPacing
	stopOnce sync.Once

	mu      sync.Mutex
	empty   int       // bytes that carried nothing, less those that time has forgotten
	counted time.Time // when time last lowered empty
}

func newPacedConn(conn net.Conn) *pacedConn {
	return &pacedConn{Conn: conn, stopped: make(chan struct{}), counted: time.Now()}
}

// Read reads from the connection below. It lets other goroutines run after each read, because a peer that sends empty
// fragments could keep a processor for up to 10 ms at a time.
func (c *pacedConn) Read(b []byte) (int, error) {
	c.wait()
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	c.empty += n
	c.mu.Unlock()
	runtime.Gosched()
	return n, err //nolint:wrapcheck // a pass-through
}

// carried counts n bytes of payload among the bytes that were read.
func (c *pacedConn) carried(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.empty = max(0, c.empty-bytesPerPayloadByte*n)
}

// excess returns by how many bytes those that carried nothing exceed the burst.
func (c *pacedConn) excess() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.empty > emptyBytesBurst {
		forgotten := time.Since(c.counted) / emptyBytesForgotten
		c.empty, c.counted = max(0, c.empty-int(min(forgotten, time.Duration(c.empty)))), time.Now()
	}
	return c.empty - emptyBytesBurst
}

// wait waits until the bytes that carried nothing are within the burst.
func (c *pacedConn) wait() {
	over := c.excess()
	if over <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(over) * emptyBytesForgotten)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.stopped:
	}
}

// stopPacing ends the waits of Read, now and later, before the connection is closed.
func (c *pacedConn) stopPacing() { c.stopOnce.Do(func() { close(c.stopped) }) }
