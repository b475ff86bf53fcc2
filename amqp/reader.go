package amqp

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

// AcknowledgingConn is a connection whose kernel can be told to acknowledge received bytes now, and not up to
// 40 ms later. A client with a small send buffer (64 KiB in .NET) sends the rest of a large message only after
// the acknowledgement of its beginning.
type AcknowledgingConn interface {
	net.Conn
	AcknowledgeAtOnce()
}

// timestampingReader records when the peer last sent something, and acknowledges the parts of a delivery.
type timestampingReader struct{ c *conn }

func (r timestampingReader) Read(b []byte) (int, error) {
	if r.c.acknowledge != nil && (r.c.inDelivery || r.c.reader.Buffered() > 0) {
		r.c.acknowledge()
	}
	n, err := r.c.peer.Read(b)
	r.c.totals.BytesIn.Add(uint64(n))
	r.c.lastRead.Store(time.Now().UnixNano())
	return n, err
}

// read handles frames until the connection ends.
func (c *conn) read(ctx context.Context) error {
	defer c.recovered(ctx)
	if err := c.handshake(ctx); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		c.waitUntilReadAllowed()
		over := c.phase == phaseClosed
		c.unlock()
		if over {
			return nil
		}
		frame, err := c.reader.ReadFrame()
		if err != nil {
			return c.readFailed(ctx, err)
		}
		last, fault := c.handle(ctx, &frame)
		if fault != nil {
			c.fail(ctx, fault)
		}
		if last {
			return nil
		}
		c.payForFrame(ctx, frame.Body)
	}
}

// waitUntilReadAllowed blocks the reader while the connection holds too much: deliveries that are not stored
// yet, or output that the peer does not read. TCP flow control then stops the peer.
func (c *conn) waitUntilReadAllowed() {
	for c.phase < phaseClosing && (c.inFlightBytes+c.memory.decodedBytes > c.inFlightMax() || len(c.out) > outBytesMax) {
		c.readPaused = true
		c.readAllowed.Wait()
	}
	c.resumed()
}

// resumed records that the reader waits no longer. The peer may have been silent since, but nothing was read.
// mu is held.
func (c *conn) resumed() {
	if c.readPaused {
		c.lastRead.Store(time.Now().UnixNano())
		c.readPaused = false
	}
}

// resumeReader makes the reader check its condition again.
func (c *conn) resumeReader() {
	if c.readPaused {
		c.readAllowed.Signal()
	}
}

// readFailed answers bytes that are not a frame. It continues to read until the peer closes, because closing a
// socket with unread bytes would discard our close before it is delivered.
func (c *conn) readFailed(ctx context.Context, err error) error {
	var fault *wire.ProtocolError
	if !errors.As(err, &fault) {
		return err
	}
	c.fail(ctx, &wire.Error{Condition: fault.Condition, Description: fault.Description})
	_, _ = io.Copy(io.Discard, c.peer)
	return err
}

// handle handles a frame. last is true if the frame is the peer's close; fault is the error with which the
// connection must be closed.
func (c *conn) handle(ctx context.Context, frame *wire.Frame) (last bool, fault *wire.Error) {
	if frame.Type != wire.FrameAMQP {
		return false, &wire.Error{Condition: wire.ConditionFramingError, Description: "SASL frame after the SASL layer."}
	}
	k, known := kindOf(frame.Body)
	if t, ok := frame.Body.(*wire.Transfer); ok {
		c.inDelivery = t.More && !t.Aborted
		return false, c.handleTransfer(ctx, frame, t)
	}
	c.mu.Lock()
	defer c.unlock()
	c.costs.countFrame(k, frame)
	switch last = k == closeKind; {
	case c.phase >= phaseClosing:
		return last, nil
	case !known:
		return false, &wire.Error{Condition: wire.ConditionNotAllowed, Description: "The frame is not allowed here."}
	}
	return last, performatives[k].handle(c, ctx, frame.Channel, frame.Body)
}

// payForFrame waits until the reader may handle the frame after this one, and yields to the other connections when
// work is due and after each attach. It does not yield after each frame: the writer would write each response alone.
func (c *conn) payForFrame(ctx context.Context, body wire.Performative) {
	cost := c.costs.due
	_, attach := body.(*wire.Attach)
	if attach && c.links.attaches > c.links.peak { // the peer may open as many links as it keeps without delay
		cost += attachCost
	}
	if attach || cost > 0 {
		runtime.Gosched()
	}
	if c.costs.due = 0; cost > 0 {
		c.waitForWork(ctx, cost)
	}
}

// waitForWork makes the reader wait until it may begin work. It charges the responses that were sent since the
// last time too. It returns false if the connection ends: then the work must not begin. mu is not held.
func (c *conn) waitForWork(ctx context.Context, cost int) bool {
	c.mu.Lock()
	unpaid := max(c.costs.bytes/responseUnitBytes, -cost) // negative: requests were charged for more than they got
	c.costs.bytes -= unpaid * responseUnitBytes
	cost += unpaid
	account := &c.work
	if !c.credentials.Authenticated() {
		account = &c.unauthenticatedWork
	}
	c.readPaused = true // a peer that is not read is not silent
	c.mu.Unlock()
	account.Wait(ctx, c.failing, cost)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumed()
	return c.phase < phaseClosing
}
