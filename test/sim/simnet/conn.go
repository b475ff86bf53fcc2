package simnet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

func newPipe(n *Network, l Link) *pipe {
	return &pipe{network: n, link: l}
}

// notify wakes the goroutines that wait for a change of the pipe.
func (p *pipe) notify() {
	p.reader.wake()
	p.writer.wake()
}

// add sends a segment.
func (p *pipe) add(s segment) {
	if p.closed || p.vanished {
		return
	}
	if !p.network.isCut(p.link) {
		s.at = time.Now().Add(p.network.latency(p.link))
		if s.at.Before(p.last) {
			s.at = p.last
		}
		s.at = s.at.Add(p.network.pace[p.link] * time.Duration(len(s.data)) / bytesOfPace)
		p.last = s.at
	}
	switch {
	case len(s.data) > 0 && !p.begun:
		p.begun, p.opposite.begun = true, true
		p.mayHarm = p.network.mayHarm(s.data)
		p.opposite.mayHarm = p.mayHarm
	default:
		p.network.damage(p, s.data)
	}
	p.network.observe(p.link, s.data)
	p.segments = append(p.segments, s)
	p.bytes += len(s.data)
	p.network.stats.Bytes += uint64(len(s.data))
	if !s.at.IsZero() {
		p.reader.wakeAt(s.at)
	}
}

// hold keeps what has not arrived, because the link is cut now.
func (p *pipe) hold() {
	now := time.Now()
	for i := range p.segments {
		if p.segments[i].at.After(now) {
			p.segments[i].at = time.Time{}
		}
	}
}

// release lets arrive what was held.
func (p *pipe) release() {
	if p.network.isCut(p.link) {
		return
	}
	at := time.Now().Add(resendMin + time.Duration(p.network.rand.Int64N(int64(resendMax-resendMin))))
	for i := range p.segments {
		if p.segments[i].at.IsZero() {
			p.segments[i].at = at
			p.last = at
		}
	}
	p.notify()
}

// reset ends the stream in both directions at once.
func (p *pipe) reset() {
	p.segments, p.bytes, p.err = nil, 0, syscall.ECONNRESET
	p.notify()
}

// conn is one end of a stream.
type conn struct {
	network       *Network
	in, out       *pipe
	local, remote net.TCPAddr

	// Guarded by the mutex of the network.
	readBy, writeBy time.Time
	closed          bool
}

// Read implements net.Conn.
func (c *conn) Read(into []byte) (int, error) {
	n, p := c.network, c.in
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case !c.readBy.IsZero() && !c.readBy.After(now):
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case len(p.segments) > 0 && !p.segments[0].at.IsZero() && !p.segments[0].at.After(now):
			if first := &p.segments[0]; first.end == nil {
				size := copy(into, first.data)
				first.data = first.data[size:]
				p.bytes -= size
				if len(first.data) == 0 {
					p.segments = p.segments[1:]
				}
				p.writer.wake()
				return size, nil
			}
			p.err = p.segments[0].end
			p.segments, p.bytes = nil, 0
		case p.err != nil:
			err := p.err
			if err == io.EOF { //nolint:errorlint // a value of our own
				return 0, err
			}
			return 0, c.failed("read", err)
		default:
			until := c.readBy
			if len(p.segments) > 0 && !p.segments[0].at.IsZero() && (until.IsZero() || p.segments[0].at.Before(until)) {
				until = p.segments[0].at
			}
			p.reader.wait(&n.mu, until)
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(data []byte) (int, error) {
	n, p := c.network, c.out
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.failed("write", net.ErrClosed)
		case !c.writeBy.IsZero() && !c.writeBy.After(time.Now()):
			return 0, c.failed("write", os.ErrDeadlineExceeded)
		case c.in.err == syscall.ECONNRESET: //nolint:errorlint // a value of our own
			return 0, c.failed("write", syscall.EPIPE)
		case p.bytes < unsentBytes:
			p.add(segment{data: append([]byte(nil), data...)})
			if p.closed || p.vanished && !n.isCut(p.link) {
				c.in.add(segment{end: syscall.ECONNRESET}) // what the peer's kernel answers
			}
			return len(data), nil
		default:
			p.writer.wait(&n.mu, c.writeBy)
		}
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.closeLocked()
	return nil
}

func (c *conn) closeLocked() {
	if c.closed {
		return
	}
	end := io.EOF
	if len(c.in.segments) > 0 { // as a kernel does where something unread is thrown away
		end = syscall.ECONNRESET
	}
	c.out.add(segment{end: end})
	c.forget()
}

// endLocked ends the stream because the process at this end is gone.
func (c *conn) endLocked(silent bool) {
	if c.closed {
		return
	}
	if silent {
		c.in.vanished = true
		c.out.hold()
		c.out.segments = arrived(c.out.segments)
	} else {
		c.out.add(segment{end: syscall.ECONNRESET})
	}
	c.forget()
}

// arrived returns the segments that the peer's kernel has.
func arrived(segments []segment) []segment {
	for i := range segments {
		if segments[i].at.IsZero() {
			return segments[:i]
		}
	}
	return segments
}

// forget closes this end.
func (c *conn) forget() {
	c.closed = true
	if !c.in.vanished {
		c.in.closed = true
	}
	c.in.segments, c.in.bytes = nil, 0
	c.in.notify()
	c.out.notify()
	for _, p := range []*pipe{c.in, c.out} {
		if p.ended++; p.ended == 2 {
			delete(c.network.pipes, p)
		}
	}
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: &c.local, Addr: &c.remote, Err: err}
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return &c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return &c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(at time.Time) error { return c.setDeadlines(&at, &at) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(at time.Time) error { return c.setDeadlines(&at, nil) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(at time.Time) error { return c.setDeadlines(nil, &at) }

func (c *conn) setDeadlines(read, write *time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return c.failed("set deadline", net.ErrClosed)
	}
	if read != nil {
		c.readBy = *read
		c.in.reader.wake()
	}
	if write != nil {
		c.writeBy = *write
		c.out.writer.wake()
	}
	return nil
}
