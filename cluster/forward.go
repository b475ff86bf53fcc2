package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// pingsSilentMax is how many intervals a connection may be silent before it is given up.
const pingsSilentMax = 3

// answerer takes the end of one attempt. tag is what was given with the attempt. It is
// called exactly once per attempt, from a goroutine of the room's, and must not block.
type answerer interface {
	answered(tag uint64, answer partition.Answer, hint fsm.MemberID)
}

// forwarder brings requests to other members: one connection per member, opened when
// first needed and kept. Its methods may be called concurrently.
type forwarder struct {
	dial func(ctx context.Context, to fsm.MemberID) (net.Conn, error)
	log  *slog.Logger
	ping time.Duration

	mu     sync.Mutex
	conns  map[fsm.MemberID]*forwardConn
	closed bool
	done   sync.WaitGroup
}

func newForwarder(log *slog.Logger, ping time.Duration, dial func(context.Context, fsm.MemberID) (net.Conn, error)) *forwarder {
	return &forwarder{dial: dial, log: log, ping: ping, conns: make(map[fsm.MemberID]*forwardConn)}
}

// to returns the connection to a member, opening it if need be; nil while closing. It
// does not block: what is asked before the connection stands is sent when it does.
func (f *forwarder) to(member fsm.MemberID) *forwardConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	c := f.conns[member]
	if c == nil {
		ctx, cancel := context.WithCancel(context.Background())
		c = &forwardConn{member: member, out: newOutbox(outboxAskBytes), calls: make(map[uint64]call), undial: cancel}
		f.conns[member] = c
		f.done.Go(func() {
			defer cancel()
			f.run(ctx, c)
		})
	}
	return c
}

// drop breaks the connection to a member that is gone: what is outstanding there
// ends as unknown at once.
func (f *forwarder) drop(member fsm.MemberID) {
	f.mu.Lock()
	c := f.conns[member]
	f.mu.Unlock()
	if c != nil {
		c.breakOff()
	}
}

// tick pings every connection and breaks those that have been silent for too long.
func (f *forwarder) tick(now time.Time) {
	f.mu.Lock()
	conns := make([]*forwardConn, 0, len(f.conns))
	for _, c := range f.conns {
		conns = append(conns, c)
	}
	f.mu.Unlock()
	for _, c := range conns {
		heard := c.heard.Load()
		if heard == 0 {
			continue // not open yet: the dial has its own limit
		}
		if now.UnixNano()-heard > int64(pingsSilentMax*f.ping) {
			f.log.Warn("a member does not answer: its connection is given up", "peer", c.member)
			c.breakOff()
			continue
		}
		if buf, err := c.out.begin(framePing, 0); err == nil {
			_ = c.out.end(buf)
		}
	}
}

// close breaks all connections and waits.
func (f *forwarder) close() {
	f.mu.Lock()
	f.closed = true
	conns := f.conns
	f.conns = make(map[fsm.MemberID]*forwardConn)
	f.mu.Unlock()
	for _, c := range conns {
		c.breakOff()
	}
	f.done.Wait()
}

// run is the life of one connection: dial, read until it breaks, end what is outstanding.
func (f *forwarder) run(ctx context.Context, c *forwardConn) {
	outcome := partition.Refused // nothing has been sent
	conn, err := f.dial(ctx, c.member)
	if err == nil && c.opened(conn) {
		outcome = partition.Unknown
		var writer sync.WaitGroup
		writer.Go(func() {
			_ = c.out.write(conn) // what went wrong shows at the reader too
			_ = conn.Close()
		})
		err = c.read(conn)
		_ = conn.Close()
		c.out.close()
		writer.Wait()
	}
	f.mu.Lock()
	if f.conns[c.member] == c {
		delete(f.conns, c.member)
	}
	f.mu.Unlock()
	f.log.DebugContext(ctx, "forward connection ended", "peer", c.member, "error", err)
	c.endAll(outcome, err)
}

// call is one request on its way: either to takes the answer, or reply the reply.
type call struct {
	to    answerer
	tag   uint64
	reply chan<- queryReply
}

// queryReply is the end of a query; err is set when no reply came.
type queryReply struct {
	status queryStatus
	code   fsm.Code
	body   []byte
	err    error
}

// forwardConn is a connection to another member, in the direction of our requests.
// Invariant: every id in calls was put into out, and is answered exactly once.
type forwardConn struct {
	member fsm.MemberID
	out    *outbox
	undial context.CancelFunc // ends the dial
	heard  atomic.Int64       // ns since 1970 of the last frame, 0 before the connection stands

	mu     sync.Mutex
	conn   net.Conn
	calls  map[uint64]call
	last   uint64
	broken bool
}

// opened takes the dialed connection; false: it was broken off meanwhile.
func (c *forwardConn) opened(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		_ = conn.Close()
		return false
	}
	c.conn = conn
	c.heard.Store(time.Now().UnixNano())
	return true
}

// breakOff ends the connection; run then ends what is outstanding.
func (c *forwardConn) breakOff() {
	c.mu.Lock()
	c.broken = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.mu.Unlock()
	c.undial()
	c.out.close()
}

// endAll ends everything outstanding, and everything that still comes.
func (c *forwardConn) endAll(outcome partition.Outcome, err error) {
	c.mu.Lock()
	c.broken = true
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	c.out.close()
	if err == nil {
		err = errStreamUp
	}
	for _, call := range calls {
		if call.reply != nil {
			call.reply <- queryReply{err: err}
		} else {
			call.to.answered(call.tag, partition.Answer{Outcome: outcome}, "")
		}
	}
}

// enter gives a request its id; false: the connection has ended.
func (c *forwardConn) enter(call call) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return 0, false
	}
	c.last++
	c.calls[c.last] = call
	return c.last, true
}

// leave takes a request out; false: somebody else has ended it.
func (c *forwardConn) leave(id uint64) (call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.calls[id]
	delete(c.calls, id)
	return call, ok
}

// submit brings the command to the partition's replica at the other end.
func (c *forwardConn) submit(id fsm.PartitionID, command []byte, to answerer, tag uint64) {
	c.ask(frameSubmit, id, 0, command, to, tag)
}

// lock brings a LockMessages there, which waits up to wait. The id is for cancel; 0 when
// the request has ended already.
func (c *forwardConn) lock(id fsm.PartitionID, wait time.Duration, command []byte, to answerer, tag uint64) uint64 {
	return c.ask(frameLock, id, wait, command, to, tag)
}

func (c *forwardConn) ask(kind frameKind, id fsm.PartitionID, wait time.Duration, command []byte, to answerer, tag uint64) uint64 {
	request, ok := c.enter(call{to: to, tag: tag})
	if !ok {
		to.answered(tag, partition.Answer{Outcome: partition.Refused}, "")
		return 0
	}
	buf, err := c.out.begin(kind, request)
	if err == nil {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		if kind == frameLock {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(max(0, wait.Milliseconds())))
		}
		err = c.out.end(append(buf, command...))
	}
	if err != nil {
		if _, mine := c.leave(request); mine {
			to.answered(tag, partition.Answer{Outcome: partition.Refused}, "")
		}
		return 0
	}
	return request
}

// cancel ends the waiting of a lock request; its answer still comes.
func (c *forwardConn) cancel(request uint64) {
	if buf, err := c.out.begin(frameCancel, request); err == nil {
		_ = c.out.end(buf)
	}
}

// query asks and waits for the reply.
func (c *forwardConn) query(ctx context.Context, kind queryKind, arguments []byte) (queryReply, error) {
	reply := make(chan queryReply, 1)
	request, ok := c.enter(call{reply: reply})
	if !ok {
		return queryReply{}, errStreamUp
	}
	buf, err := c.out.begin(frameQuery, request)
	if err == nil {
		err = c.out.end(append(append(buf, byte(kind)), arguments...))
	}
	if err != nil {
		c.leave(request)
		return queryReply{}, fmt.Errorf("ask member %s: %w", c.member, err)
	}
	select {
	case r := <-reply:
		return r, r.err
	case <-ctx.Done():
		c.leave(request)
		return queryReply{}, fmt.Errorf("ask member %s: %w", c.member, ctx.Err())
	}
}

// read dispatches what the other member sends until the connection breaks.
func (c *forwardConn) read(conn net.Conn) error {
	reader := frameReader{from: conn}
	for {
		kind, id, body, err := reader.next()
		if err != nil {
			return err
		}
		c.heard.Store(time.Now().UnixNano())
		switch kind {
		case frameAnswer:
			err = c.onAnswer(id, body)
		case frameReply:
			err = c.onReply(id, body)
		case framePong:
		case frameSubmit, frameLock, frameCancel, frameQuery, framePing:
			err = errFrame
		default:
			err = errFrame
		}
		if err != nil {
			return fmt.Errorf("frame of kind %d: %w", kind, err)
		}
	}
}

// onAnswer: outcome, length of leader, leader, result bytes. A refusal has one byte in their
// place when it is firm.
func (c *forwardConn) onAnswer(id uint64, body []byte) error {
	if len(body) < 2 || len(body) < 2+int(body[1]) {
		return errFrame
	}
	answer := partition.Answer{Outcome: partition.Outcome(body[0])}
	hint := fsm.MemberID(body[2 : 2+body[1]])
	switch answer.Outcome {
	case partition.Done:
		result, err := fsm.DecodeResult(body[2+int(body[1]):])
		if err != nil {
			return errors.Join(errFrame, err)
		}
		answer.Result = result
	case partition.Refused:
		answer.Firm = len(body) > 2+int(body[1])
	case partition.Unknown:
	default:
		return errFrame
	}
	if call, ok := c.leave(id); ok && call.to != nil {
		call.to.answered(call.tag, answer, hint)
	}
	return nil
}

// onReply: status, code, bytes.
func (c *forwardConn) onReply(id uint64, body []byte) error {
	if len(body) < 2 {
		return errFrame
	}
	if call, ok := c.leave(id); ok && call.reply != nil {
		call.reply <- queryReply{status: queryStatus(body[0]), code: fsm.Code(body[1]), body: body[2:]}
	}
	return nil
}
