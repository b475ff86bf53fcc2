package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition"
)

// The limits of what one other member may have outstanding here.
const (
	serveRequestsMax  = 256 << 10              // submissions and locks not yet answered
	serveBytesMax     = 256 << 20              // of their commands
	serveQueriesMax   = 64                     // queries at a time
	serveQueryTimeout = 10 * time.Second       // for one query
	serveIdleMax      = time.Minute            // without a byte, pings included
	partPongInterval  = 250 * time.Millisecond // between pongs while frames arrive
	LockWaitMax       = 10 * time.Minute       // of one lock request
)

// Group is a replica of this member. *partition.Group is one.
type Group interface {
	Submit(command []byte, done func(partition.Answer))
	Lock(request partition.LockRequest) (cancel func())
	Status() partition.Status
	Leader() fsm.MemberID
	View(look func(partition.Machine))
	Read(ctx context.Context, look func(partition.Machine)) error
	ReadBodies(deliveries []fsm.Delivery) ([]fsm.Delivery, error)
}

// Host answers the requests of other members.
type Host interface {
	// LocalReplica returns this member's replica of a partition, or nil when none is open.
	LocalReplica(id fsm.PartitionID) Group
	// Clocks returns the clocks of this member.
	Clocks() clocks.Reading
	// AnswerQuery answers a query. It may block until ctx ends.
	AnswerQuery(ctx context.Context, kind QueryKind, arguments []byte) Reply
}

// server serves one connection of another member, in the direction of its requests.
type server struct {
	host   Host
	log    *slog.Logger
	from   fsm.MemberID
	writer *frameWriter

	queries chan struct{} // one slot per query

	mu       sync.Mutex
	requests int
	bytes    int
	locks    map[uint64]func() // cancels waiting lock requests; nil before Lock has returned
	ended    bool
}

// Serve serves one connection until it ends.
func Serve(ctx context.Context, h Host, log *slog.Logger, from fsm.MemberID, conn net.Conn) {
	s := &server{
		host: h, log: log, from: from,
		writer:  newFrameWriter(answerBufferBytes),
		queries: make(chan struct{}, serveQueriesMax),
		locks:   make(map[uint64]func()),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		_ = s.writer.writeTo(conn) // the reader sees the failure, too
		_ = conn.Close()
	})
	err := s.read(ctx, conn, &goroutines)
	_ = conn.Close()
	cancel()
	s.writer.close()
	s.cancelLocks()
	goroutines.Wait()
	log.DebugContext(ctx, "connection of a member ended", "peer", from, "error", err)
}

func (s *server) read(ctx context.Context, conn net.Conn, goroutines *sync.WaitGroup) error {
	var deadline time.Time
	ponged := time.Now()
	// Setting the deadline costs more than a frame, so it is set rarely.
	extend := func(now time.Time) error {
		if deadline.Sub(now) >= serveIdleMax/2 {
			return nil
		}
		deadline = now.Add(serveIdleMax)
		return conn.SetReadDeadline(deadline)
	}
	// A ping waits behind requests that take long to arrive, whether they are few and large or many and small. The other
	// member must not take that for silence, so it gets pongs meanwhile.
	part := func() error {
		now := time.Now()
		if now.Sub(ponged) >= partPongInterval {
			ponged = now
			if err := s.pong(0); err != nil {
				return err
			}
		}
		return extend(now)
	}
	reader := frameReader{from: conn, part: part}
	for {
		if err := part(); err != nil {
			return err
		}
		kind, id, body, err := reader.next()
		if err != nil {
			return err
		}
		switch kind {
		case frameSubmit:
			err = s.handleSubmit(id, body)
		case frameLock:
			err = s.handleLock(id, body)
		case frameCancel:
			s.handleCancel(id)
		case frameQuery:
			err = s.handleQuery(ctx, id, body, goroutines)
		case framePing:
			err = s.pong(id)
		case frameAnswer, frameReply, framePong:
			err = ErrFrame
		default:
			err = ErrFrame
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) pong(id uint64) error {
	buf, err := s.writer.begin(framePong, id)
	if err != nil {
		return err
	}
	x, head := fields.Encoder(buf), newPongHead(s.host.Clocks())
	head.fields(&x)
	return s.writer.end(x.Buf)
}

// handleSubmit decodes a submission.
func (s *server) handleSubmit(id uint64, body []byte) error {
	x := fields.Decoder(body)
	var head requestHead
	if head.fields(&x, frameSubmit); x.Err() != nil {
		return malformed(x.Err())
	}
	command := x.Buf
	if err := verify(head.partition, command); err != nil {
		return err
	}
	group := s.host.LocalReplica(head.partition)
	if group == nil || !s.acquire(len(command)) {
		s.answer(id, group, partition.Answer{Outcome: partition.Refused})
		return nil
	}
	group.Submit(command, func(a partition.Answer) {
		s.release(len(command))
		s.answer(id, group, a)
	})
	return nil
}

// verify refuses a command that must not reach a log: one that the state machine of the partition does
// not know, or that does not decode, stops every replica that applies it. A member that sends one is
// newer than this one, or faulty.
func verify(to fsm.PartitionID, command []byte) error {
	kind, err := fsm.VerifyCommand(command)
	if err == nil && !kind.IsFor(to) {
		err = fmt.Errorf("%w: command %s for partition %d", ErrFrame, kind, to)
	}
	return err
}

// handleLock decodes a lock request.
func (s *server) handleLock(id uint64, body []byte) error {
	x := fields.Decoder(body)
	var head requestHead
	if head.fields(&x, frameLock); x.Err() != nil {
		return malformed(x.Err())
	}
	wait := min(time.Duration(head.wait)*time.Millisecond, LockWaitMax)
	header, command, err := fsm.DecodeCommand(x.Buf)
	if err != nil {
		return err
	}
	request := partition.LockRequest{Header: header, Until: time.Now().Add(wait)}
	switch c := command.(type) {
	case fsm.LockMessages:
		request.Lock = c
	case fsm.AcceptSession:
		request.Accept = &c
	default:
		return ErrFrame
	}
	if !fsm.KindLockMessages.IsFor(head.partition) {
		return ErrFrame
	}
	group := s.host.LocalReplica(head.partition)
	if group == nil || !s.acquire(0) {
		s.answer(id, group, partition.Answer{Outcome: partition.Refused})
		return nil
	}
	s.mu.Lock()
	s.locks[id] = nil // cannot be cancelled before Lock has returned
	s.mu.Unlock()
	request.Done = func(a partition.Answer) {
		s.mu.Lock()
		delete(s.locks, id)
		s.mu.Unlock()
		s.release(0)
		s.answer(id, group, a)
	}
	cancel := group.Lock(request)
	s.mu.Lock()
	if _, waits := s.locks[id]; waits {
		s.locks[id] = cancel
	}
	s.mu.Unlock()
	return nil
}

func (s *server) handleCancel(id uint64) {
	s.mu.Lock()
	cancel := s.locks[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// cancelLocks ends the waits of a disconnected member; the member gets the messages locked for it meanwhile
// when it asks again with the same header.
func (s *server) cancelLocks() {
	s.mu.Lock()
	s.ended = true
	cancels := make([]func(), 0, len(s.locks))
	for _, cancel := range s.locks {
		if cancel != nil {
			cancels = append(cancels, cancel)
		}
	}
	s.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

// handleQuery decodes a query. Queries may block, so each has a goroutine; their number is bounded.
func (s *server) handleQuery(ctx context.Context, id uint64, body []byte, goroutines *sync.WaitGroup) error {
	x := fields.Decoder(body)
	kind := QueryKind(x.Byte())
	if x.Err() != nil {
		return malformed(x.Err())
	}
	arguments := x.Buf
	select {
	case s.queries <- struct{}{}:
	default:
		s.reply(id, Reply{Status: StatusFailed, Code: fsm.ServerBusy})
		return nil
	}
	goroutines.Go(func() {
		defer func() { <-s.queries }()
		ctx, cancel := context.WithTimeout(ctx, serveQueryTimeout)
		defer cancel()
		s.reply(id, s.host.AnswerQuery(ctx, kind, arguments))
	})
	return nil
}

// acquire counts a request. It returns false when the member has too many outstanding.
func (s *server) acquire(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.requests >= serveRequestsMax || s.bytes+bytes > serveBytesMax {
		return false
	}
	s.requests++
	s.bytes += bytes
	return true
}

func (s *server) release(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	s.bytes -= bytes
}

// answer sends the answer to a submission or lock; a refusal names the leader, if this member knows it.
func (s *server) answer(id uint64, group Group, a partition.Answer) {
	hint := fsm.MemberID("")
	if a.Outcome == partition.Refused && group != nil {
		hint = group.Leader()
	}
	buf, err := s.writer.begin(frameAnswer, id)
	if err == nil {
		x := fields.Encoder(buf)
		head := answerHead{a.Outcome, a.Final, hint}
		head.fields(&x)
		if hasResult(a) {
			x.Buf = fsm.AppendResult(x.Buf, a.Result)
		}
		err = s.writer.end(x.Buf)
	}
	if errors.Is(err, errBufferFull) { // the member does not read; it needs a new connection to learn what it missed
		s.log.Warn("closed the connection of a member that does not read its answers", "peer", s.from)
		s.writer.close()
	}
}

// hasResult reports whether the result of an answer is sent. A final refusal without one has the code ServerBusy. That of a leader
// with a full queue has the code, so that the other member does not look for another leader.
func hasResult(a partition.Answer) bool {
	switch a.Outcome {
	case partition.Done:
		return true
	case partition.Refused:
		return a.Result.Code != fsm.OK && (!a.Final || a.Result.Code != fsm.ServerBusy)
	case partition.Unknown:
	}
	return false
}

// reply sends the reply to a query.
func (s *server) reply(id uint64, r Reply) {
	if err := s.write(id, r); errors.Is(err, errBufferFull) {
		s.log.Warn("failed to send a reply: it is too long", "peer", s.from, "bytes", len(r.Body))
		_ = s.write(id, Reply{Status: StatusFailed, Code: fsm.Internal})
	}
}

func (s *server) write(id uint64, r Reply) error {
	if len(r.Body) > longFrameBytes {
		x := fields.Encoder(appendFrameHeader(nil, frameReply, id))
		r.fields(&x)
		return s.writer.addLong(slices.Concat(x.Buf, r.Body))
	}
	buf, err := s.writer.begin(frameReply, id)
	if err != nil {
		return err
	}
	x := fields.Encoder(buf)
	r.fields(&x)
	return s.writer.end(append(x.Buf, r.Body...))
}
