package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition"
)

// pingIntervalsSilentMax is how many intervals a connection may be silent before it is closed.
const pingIntervalsSilentMax = 3

// AnswerHandler gets the result of one submission: the answer, the tag of the submission and, with a
// refusal, the presumed leader. HandleAnswer is called exactly once per submission, from any goroutine,
// and must not block.
type AnswerHandler interface {
	HandleAnswer(tag uint64, answer partition.Answer, hint fsm.MemberID)
}

// Client sends requests to other members: it has one connection per member, opened when
// first needed and kept. It is safe for concurrent use.
type Client struct {
	dial func(ctx context.Context, to fsm.MemberID) (net.Conn, error)
	log  *slog.Logger
	ping time.Duration
	// observeClock is told what the clocks of a member showed at the middle of a round trip; it may be nil.
	observeClock func(member fsm.MemberID, read clocks.Reading, roundTrip time.Duration)

	mu      sync.Mutex
	conns   map[fsm.MemberID]*Conn
	closed  bool
	running sync.WaitGroup
}

// NewClient returns a client that opens connections with dial. ping is the interval at which the caller
// calls PingAll.
func NewClient(log *slog.Logger, ping time.Duration, dial func(context.Context, fsm.MemberID) (net.Conn, error)) *Client {
	return &Client{dial: dial, log: log, ping: ping, conns: make(map[fsm.MemberID]*Conn)}
}

// OnClock sets a function that gets the clocks of a member with each answered ping, at the middle of the round
// trip. It must not block. Call it before the first connection.
func (f *Client) OnClock(observe func(member fsm.MemberID, read clocks.Reading, roundTrip time.Duration)) {
	f.observeClock = observe
}

// Conn returns the connection to a member and opens it if there is none; nil while closing. It
// does not block: requests wait until the connection is open.
func (f *Client) Conn(member fsm.MemberID) *Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	c := f.conns[member]
	if c == nil {
		ctx, cancel := context.WithCancel(context.Background())
		c = &Conn{member: member, observeClock: f.observeClock, writer: newFrameWriter(requestBufferBytes), calls: make(map[uint64]pendingCall), cancelDial: cancel}
		f.conns[member] = c
		f.running.Go(func() {
			defer cancel()
			f.run(ctx, c)
		})
	}
	return c
}

// Conns returns the number of connections, including those that are being opened.
func (f *Client) Conns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// Drop breaks the connection to a member that has left: the outstanding requests
// end as Unknown immediately.
func (f *Client) Drop(member fsm.MemberID) {
	f.mu.Lock()
	c := f.conns[member]
	f.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// PingAll pings every connection and closes those that have been silent for too long.
func (f *Client) PingAll(now time.Time) {
	f.mu.Lock()
	conns := make([]*Conn, 0, len(f.conns))
	for _, c := range f.conns {
		conns = append(conns, c)
	}
	f.mu.Unlock()
	for _, c := range conns {
		heard := c.lastHeard.Load()
		if heard == 0 {
			continue // not open yet; the dial has its own limit
		}
		if now.UnixNano()-heard > int64(pingIntervalsSilentMax*f.ping) {
			f.log.Warn("closed the connection to a member that does not answer", "peer", c.member)
			c.close()
			continue
		}
		if buf, err := c.writer.begin(framePing, c.nextPing()); err == nil {
			_ = c.writer.end(buf)
		}
	}
}

// Close closes all connections and waits until all outstanding requests have ended.
func (f *Client) Close() {
	f.mu.Lock()
	f.closed = true
	conns := f.conns
	f.conns = make(map[fsm.MemberID]*Conn)
	f.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
	f.running.Wait()
}

// run serves one connection: it dials, reads until the connection breaks, and ends the outstanding requests.
func (f *Client) run(ctx context.Context, c *Conn) {
	outcome := partition.Refused // nothing has been sent
	conn, err := f.dial(ctx, c.member)
	if err == nil && c.opened(conn) {
		outcome = partition.Unknown
		var writer sync.WaitGroup
		writer.Go(func() {
			_ = c.writer.writeTo(conn) // the reader sees the failure, too
			_ = conn.Close()
		})
		err = c.read(conn)
		_ = conn.Close()
		c.writer.close()
		writer.Wait()
	}
	f.mu.Lock()
	if f.conns[c.member] == c {
		delete(f.conns, c.member)
	}
	f.mu.Unlock()
	f.log.DebugContext(ctx, "connection to a member ended", "peer", c.member, "error", err)
	c.endAll(outcome, err)
}

// pendingCall is one outstanding request: a submission has a handler, a query a reply channel.
type pendingCall struct {
	handler AnswerHandler
	tag     uint64
	reply   chan<- Reply
}

// Conn is a connection to another member, in the direction of this member's requests.
// Invariant: every id in calls was written or is about to be, and is answered exactly once.
type Conn struct {
	member     fsm.MemberID
	writer     *frameWriter
	cancelDial context.CancelFunc // ends the dial
	lastHeard  atomic.Int64       // time of the last bytes in ns since 1970, 0 before the connection is open

	observeClock func(member fsm.MemberID, read clocks.Reading, roundTrip time.Duration)

	mu     sync.Mutex
	conn   net.Conn
	calls  map[uint64]pendingCall
	lastID uint64
	broken bool
	pingID uint64 // of the newest ping
	pinged time.Time
}

// opened stores the dialled connection. It returns false when the connection was closed meanwhile.
func (c *Conn) opened(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		_ = conn.Close()
		return false
	}
	c.conn = conn
	c.lastHeard.Store(time.Now().UnixNano())
	return true
}

// nextPing returns the id of a ping that is sent now.
func (c *Conn) nextPing() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pingID, c.pinged = c.pingID+1, time.Now()
	return c.pingID
}

// handlePong reads the clocks of the other member, and reports those of the answer to the newest ping.
func (c *Conn) handlePong(id uint64, body []byte) error {
	x := fields.Decoder(body)
	var head pongHead
	head.fields(&x)
	if err := malformed(x.End()); err != nil {
		return err
	}
	c.mu.Lock()
	newest, took := id == c.pingID && id != 0, time.Since(c.pinged)
	c.mu.Unlock()
	if newest && c.observeClock != nil {
		c.observeClock(c.member, head.reading(), took)
	}
	return nil
}

// close closes the connection; run then ends the outstanding requests.
func (c *Conn) close() {
	c.mu.Lock()
	c.broken = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.mu.Unlock()
	c.cancelDial()
	c.writer.close()
}

// endAll ends all outstanding requests and all later ones.
func (c *Conn) endAll(outcome partition.Outcome, err error) {
	c.mu.Lock()
	c.broken = true
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	c.writer.close()
	if err == nil {
		err = ErrClosed
	}
	for _, call := range calls {
		if call.reply != nil {
			call.reply <- Reply{err: err}
		} else {
			call.handler.HandleAnswer(call.tag, partition.Answer{Outcome: outcome}, "")
		}
	}
}

// register gives a request its id. It returns false when the connection has ended.
func (c *Conn) register(call pendingCall) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return 0, false
	}
	c.lastID++
	c.calls[c.lastID] = call
	return c.lastID, true
}

// unregister removes a request. It returns false when the request has ended already.
func (c *Conn) unregister(id uint64) (pendingCall, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.calls[id]
	delete(c.calls, id)
	return call, ok
}

// Submit sends an encoded command to the replica of a partition at the other member.
func (c *Conn) Submit(id fsm.PartitionID, command []byte, to AnswerHandler, tag uint64) {
	c.send(frameSubmit, id, 0, command, to, tag)
}

// Lock sends an encoded LockMessages or AcceptSession, which waits at the other member up to wait. It
// returns the id for Cancel, or 0 when the request has ended already.
func (c *Conn) Lock(id fsm.PartitionID, wait time.Duration, command []byte, to AnswerHandler, tag uint64) uint64 {
	return c.send(frameLock, id, wait, command, to, tag)
}

func (c *Conn) send(kind frameKind, id fsm.PartitionID, wait time.Duration, command []byte, to AnswerHandler, tag uint64) uint64 {
	request, ok := c.register(pendingCall{handler: to, tag: tag})
	if !ok {
		to.HandleAnswer(tag, partition.Answer{Outcome: partition.Refused}, "")
		return 0
	}
	buf, err := c.writer.begin(kind, request)
	if err == nil {
		x := fields.Encoder(buf)
		head := requestHead{id, uint32(max(0, wait.Milliseconds()))}
		head.fields(&x, kind)
		err = c.writer.end(append(x.Buf, command...))
	}
	if err != nil {
		if _, mine := c.unregister(request); mine {
			to.HandleAnswer(tag, partition.Answer{Outcome: partition.Refused}, "")
		}
		return 0
	}
	return request
}

// Cancel ends the wait of a lock request, which is still answered.
func (c *Conn) Cancel(request uint64) {
	if buf, err := c.writer.begin(frameCancel, request); err == nil {
		_ = c.writer.end(buf)
	}
}

// Query sends a query and waits for the reply or the end of ctx.
func (c *Conn) Query(ctx context.Context, kind QueryKind, arguments []byte) (Reply, error) {
	reply := make(chan Reply, 1)
	request, ok := c.register(pendingCall{reply: reply})
	if !ok {
		return Reply{}, ErrClosed
	}
	buf, err := c.writer.begin(frameQuery, request)
	if err == nil {
		x := fields.Encoder(buf)
		fields.Uint8(&x, &kind)
		err = c.writer.end(append(x.Buf, arguments...))
	}
	if err != nil {
		c.unregister(request)
		return Reply{}, fmt.Errorf("ask member %s: %w", c.member, err)
	}
	select {
	case r := <-reply:
		return r, r.err
	case <-ctx.Done():
		c.unregister(request)
		return Reply{}, fmt.Errorf("ask member %s: %w", c.member, ctx.Err())
	}
}

// read dispatches the frames of the other member until the connection breaks.
func (c *Conn) read(conn net.Conn) error {
	reader := frameReader{from: conn, part: c.heard}
	for {
		kind, id, body, err := reader.next()
		if err != nil {
			return err
		}
		_ = c.heard()
		switch kind {
		case frameAnswer:
			err = c.handleAnswer(id, body)
		case frameReply:
			err = c.handleReply(id, body)
		case framePong:
			err = c.handlePong(id, body)
		case frameSubmit, frameLock, frameCancel, frameQuery, framePing:
			err = ErrFrame
		default:
			err = ErrFrame
		}
		if err != nil {
			return fmt.Errorf("frame of kind %d: %w", kind, err)
		}
	}
}

// heard records that the other member has sent something: a whole frame, or a part of one that takes long.
func (c *Conn) heard() error {
	c.lastHeard.Store(time.Now().UnixNano())
	return nil
}

// handleAnswer decodes an answer.
func (c *Conn) handleAnswer(id uint64, body []byte) error {
	x := fields.Decoder(body)
	var head answerHead
	head.fields(&x)
	answer := partition.Answer{Outcome: head.outcome, Final: head.final}
	err := x.Err()
	switch head.outcome {
	case partition.Done:
		if err == nil {
			answer.Result, err = fsm.DecodeResult(x.Buf)
		}
	case partition.Refused, partition.Unknown:
		if answer.Final {
			answer.Result.Code = fsm.ServerBusy
		}
		if err == nil && head.outcome == partition.Refused && len(x.Buf) > 0 {
			answer.Result, err = fsm.DecodeResult(x.Buf)
			break
		}
		err = x.End()
	default:
		return ErrFrame
	}
	if err != nil {
		return malformed(err)
	}
	if call, ok := c.unregister(id); ok && call.handler != nil {
		call.handler.HandleAnswer(call.tag, answer, head.leader)
	}
	return nil
}

// handleReply decodes a reply.
func (c *Conn) handleReply(id uint64, body []byte) error {
	x := fields.Decoder(body)
	var reply Reply
	if reply.fields(&x); x.Err() != nil {
		return malformed(x.Err())
	}
	reply.Body = x.Buf
	if call, ok := c.unregister(id); ok && call.reply != nil {
		call.reply <- reply
	}
	return nil
}
