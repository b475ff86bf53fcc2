package amqp

import (
	"context"
	"runtime"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

// emit appends one frame to the output; a nil body is an empty frame. mu is held.
func (c *conn) emit(channel uint16, body wire.Performative) {
	if c.phase == phaseClosed {
		return
	}
	c.out = wire.AppendFrame(c.out, wire.FrameAMQP, channel, body)
	c.notify()
}

// emitDisposition is emit for a disposition. It does not let d escape to the heap.
func (c *conn) emitDisposition(channel uint16, d *wire.Disposition) {
	if c.phase == phaseClosed {
		return
	}
	c.out = wire.AppendDisposition(c.out, channel, d)
	c.notify()
}

// emitFlow is emit for a flow. It does not let f escape to the heap.
func (c *conn) emitFlow(channel uint16, f *wire.Flow) {
	if c.phase == phaseClosed {
		return
	}
	c.out = wire.AppendFlow(c.out, channel, f)
	c.notify()
}

// notify wakes the writer. One token is enough for any number of frames.
func (c *conn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write is the writer goroutine: it sends all output with one call. Output that accumulates during that call
// is sent with the next one.
func (c *conn) write(ctx context.Context) {
	defer close(c.written)
	defer c.recovered(ctx)
	var spare []byte
	for range c.wake {
		// The goroutine that woke the writer usually adds more: one log entry answers hundreds of sends one by
		// one. Yielding to it first combines their answers in one frame.
		runtime.Gosched()
		c.mu.Lock()
		c.restoreCredit()
		c.flushDispositions()
		c.flushStats()
		batch := c.out
		c.out = spare[:0]
		c.memory.writeBufferBytes = cap(batch)
		last := c.phase == phaseClosed
		c.resumeReader()
		c.unlock()
		if len(batch) > 0 && !c.send(batch) {
			return
		}
		if last {
			return
		}
		spare = nil
		if cap(batch) <= c.memory.fairPart(bufferBytesKept) && (len(batch) != heartbeatBytes || cap(batch) <= bufferBytesIdle) {
			spare = batch // otherwise the batch was only a heartbeat: a buffer is allocated when there is more
		}
		c.resume()
	}
}

// send writes one batch; it returns false if the connection is broken, which ends the reader.
func (c *conn) send(batch []byte) bool {
	_ = c.peer.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := c.peer.Write(batch); err != nil {
		c.abort()
		return false
	}
	c.totals.BytesOut.Add(uint64(len(batch)))
	c.lastWrite.Store(time.Now().UnixNano())
	return true
}

// resume resumes the links that stopped because too much output was waiting.
func (c *conn) resume() {
	c.mu.Lock()
	defer c.unlock()
	c.memory.writeBufferBytes = 0
	links := c.waitingForOutput
	c.waitingForOutput = nil
	for _, l := range links {
		l.waitingForOutput = false
		l.sendQueued()
	}
}

// flushDispositions writes the pending disposition ranges.
func (c *conn) flushDispositions() {
	for _, s := range c.pendingRanges {
		s.flushDispositions()
	}
	c.pendingRanges = c.pendingRanges[:0]
}

// outcome is a delivery state of a range of deliveries.
type outcome uint8

const (
	accepted outcome = iota
	released
	modified
	rejected // without an error: the answer to a successful dead-lettering
)

// state returns the outcome in its form on the wire (part 3, 3.4).
func (o outcome) state() any {
	switch o {
	case accepted:
		return &wire.Accepted{}
	case released:
		return &wire.Released{}
	case modified:
		return &wire.Modified{}
	case rejected:
		return &wire.Rejected{}
	}
	return nil
}

// dispositionRange is a range of consecutive deliveries with one outcome that becomes one disposition frame.
type dispositionRange struct {
	filled      bool
	outcome     outcome
	first, last uint32
}

// queueDisposition settles the deliveries first to last with an outcome. The gateway is the receiver of
// deliveries from clients and the sender of deliveries to clients.
func (s *session) queueDisposition(role wire.Role, o outcome, first, last uint32) {
	g := &s.ranges[0]
	if role == wire.RoleReceiver {
		g = &s.ranges[1]
	}
	if g.filled && g.outcome == o && first == g.last+1 && first != 0 { // go-amqp cannot read a range that wraps
		g.last = last
		return
	}
	if !s.ranges[0].filled && !s.ranges[1].filled {
		s.conn.pendingRanges = append(s.conn.pendingRanges, s)
		s.conn.notify()
	}
	if g.filled {
		s.emitRange(role, g)
	}
	*g = dispositionRange{filled: true, outcome: o, first: first, last: last}
}

// flushDispositions writes the pending ranges of both roles.
func (s *session) flushDispositions() {
	for i := range s.ranges {
		if g := &s.ranges[i]; g.filled {
			s.emitRange(wire.Role(i == 1), g)
			g.filled = false
		}
	}
}

func (s *session) emitRange(role wire.Role, g *dispositionRange) {
	if s.ended {
		return
	}
	last := g.last
	s.conn.emitDisposition(s.channel, &wire.Disposition{Role: role, First: g.first, Last: &last, Settled: true, State: g.outcome.state()})
}
