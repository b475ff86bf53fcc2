package transport

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const requestsInFlight = 2 // AppendEntries on one stream; more was measured as worse

// pipeline sends requests for entries over a stream without waiting for the answers to those before. One goroutine always reads:
// an answer wakes no other one before raft.
//
// It ends with the first answer after which raft stops reading (raft 1.7.3, pipelineDecode). Raft may still send then: the sender
// would wait forever for a reader of the answers, the follower would receive no entries while that leader leads, because heartbeats
// use another stream, and the raft instance could not be shut down.
//
// It sends a request with more than requestBytesMax of entries in pieces, and answers it with the answer to the last piece, or with
// the first that is negative: raft takes the entries of an answered request for what the follower holds.
type pipeline struct {
	transport Transport
	stream    *framedStream
	answers   chan raft.AppendFuture
	// inFlight has an element for each request that was sent and whose answer raft has not got. Like raft's transport, a
	// sender waits after it has written: the next request then carries all that was appended meanwhile.
	inFlight chan struct{}
	closed   chan struct{}
	once     sync.Once
	said     said           // used by AppendEntries only, of which raft makes one call at a time
	failures *atomic.Uint64 // heartbeats that have failed or were refused

	mu   sync.Mutex
	sent []*sentRequest // and not answered, oldest first
}

// said is what the last request told the follower.
type said struct {
	last, commit uint64 // indexes
	failures     uint64 // of heartbeats before it
	at           time.Time
}

// repeatInterval is the time after which a request without entries says again what the last request said. Raft sends
// one twice to four times a second (CommitTimeout), at a random moment of each group, which costs idle groups more than their
// heartbeats. The repetition finds a stream that is dead although nobody has closed it, when the time for its answer is over. What
// must be found sooner does not wait for it: after a heartbeat that has failed or was refused, the next request is sent. That request fails
// where the follower has restarted, so that raft connects again; and its answer tells a leader that was replaced unheard of the later
// term, which raft ignores in the answer to a heartbeat.
const repeatInterval = 3 * time.Second

// sentRequest is a request that was sent in a pipeline, or a piece of one. It implements raft.AppendFuture.
type sentRequest struct {
	whole   *raft.AppendEntriesRequest
	answer  *raft.AppendEntriesResponse
	last    bool // piece of its request
	begun   time.Time
	written bool
	bytes   int
	done    sync.WaitGroup
	err     error
}

// Error implements raft.Future.
func (r *sentRequest) Error() error {
	r.done.Wait()
	return r.err
}

// Start implements raft.AppendFuture.
func (r *sentRequest) Start() time.Time { return r.begun }

// Request implements raft.AppendFuture.
func (r *sentRequest) Request() *raft.AppendEntriesRequest { return r.whole }

// Response implements raft.AppendFuture.
func (r *sentRequest) Response() *raft.AppendEntriesResponse { return r.answer }

func newPipeline(t Transport, id raft.ServerID, s *framedStream) (*pipeline, error) {
	p := &pipeline{
		transport: t, stream: s, answers: make(chan raft.AppendFuture), inFlight: make(chan struct{}, requestsInFlight-1),
		closed: make(chan struct{}), failures: t.heartbeats.failures(id),
	}
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil { // of the last call
		_ = s.conn.Close()
		return nil, err
	}
	go p.read()
	return p, nil
}

// AppendEntries implements raft.AppendPipeline. When it returns without an error, all of args.Entries were sent.
// When all answers have come, a request that says nothing new is
// not sent within repeatInterval, unless a heartbeat has failed or was refused. It is never answered then, so that it proves no contact
// with the follower; raft does not wait for the answer.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.transport.waitsForTerm(); err != nil {
		return nil, err
	}
	p.transport.limitCommit(args)
	now := said{last: args.PrevLogEntry + uint64(len(args.Entries)), commit: args.LeaderCommitIndex, failures: p.failures.Load(), at: time.Now()}
	repeats := len(args.Entries) == 0 && now.at.Sub(p.said.at) < repeatInterval &&
		now.last == p.said.last && now.commit == p.said.commit && now.failures == p.said.failures
	select {
	case <-p.closed: // raft learns it from nothing else while no answer is due
		return nil, raft.ErrPipelineShutdown
	default:
	}
	if repeats && len(p.inFlight) == 0 { // a leadership transfer repeats requests until it has the answer to the last entry
		return &sentRequest{whole: args, answer: resp, begun: now.at}, nil
	}
	p.said = now
	for from := 0; ; {
		piece, next := pieceOf(args, from)
		r := &sentRequest{
			whole: args, answer: resp, last: next == len(args.Entries), begun: time.Now(),
		}
		if !r.last {
			r.answer = new(raft.AppendEntriesResponse)
		}
		r.done.Add(1)
		if err := p.send(piece, r); err != nil {
			return nil, err
		}
		if r.last {
			return r, nil
		}
		from = next
	}
}

func (p *pipeline) send(piece *raft.AppendEntriesRequest, r *sentRequest) error {
	p.mu.Lock()
	p.sent = append(p.sent, r)
	p.mu.Unlock()
	size, err := p.stream.write(piece, nil)
	if err != nil {
		_ = p.Close()
		return err
	}
	p.mu.Lock()
	r.written, r.bytes = true, size
	if len(p.sent) > 0 && p.sent[0] == r {
		p.setDeadline()
	}
	p.mu.Unlock()
	select {
	case p.inFlight <- struct{}{}:
		return nil
	case <-p.closed:
		return raft.ErrPipelineShutdown
	}
}

// setDeadline gives the answer to the oldest request its time. While that one is being written, and while nothing is in
// flight, no answer is due. The caller holds mu.
func (p *pipeline) setDeadline() {
	var at time.Time
	if len(p.sent) > 0 && p.sent[0].written {
		at = time.Now().Add(answerTime(p.sent[0].bytes))
	}
	_ = p.stream.conn.SetReadDeadline(at) // it fails on a closed stream only
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() {
		close(p.closed)
		_ = p.stream.conn.Close() // the stream may have ended already
	})
	return nil
}

// read passes the answers to raft until one is negative or the stream ends.
func (p *pipeline) read() {
	defer func() {
		_ = p.Close()
		p.mu.Lock()
		for _, r := range p.sent {
			r.finish(raft.ErrPipelineShutdown)
		}
		p.sent = nil
		p.mu.Unlock()
	}()
	for {
		r := p.readAnswer()
		if r == nil {
			return
		}
		refused := !r.answer.Success || r.answer.Term > r.whole.Term
		if r.last || refused {
			select {
			case p.answers <- r: // raft owns it from here
			case <-p.closed:
				return
			}
		}
		if refused {
			return
		}
		select {
		case <-p.inFlight:
		case <-p.closed:
			return
		}
	}
}

// readAnswer returns the oldest request when it is answered or has failed; nil if the stream ends with nothing in
// flight.
func (p *pipeline) readAnswer() *sentRequest {
	f, err := readFrame(p.stream.answers, answerBytesMax)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) == 0 {
		return nil
	}
	r := p.sent[0]
	p.sent = slices.Delete(p.sent, 0, 1)
	p.setDeadline()
	if err == nil {
		err = decodeAnswer(appendFrame, &f, r.answer)
	}
	if err != nil {
		p.logMalformed(err)
		*r.answer = raft.AppendEntriesResponse{} // raft reads no error, but that this is no success
	}
	r.finish(err)
	return r
}

// logMalformed logs that an answer was damaged. Raft reads no error of a pipeline.
func (p *pipeline) logMalformed(err error) {
	if malformed := malformedError(""); errors.As(err, &malformed) {
		p.transport.cfg.Logger.Error("closed a stream to a peer", "peer", p.stream.conn.peer, "error", err)
	}
}

func (r *sentRequest) finish(err error) {
	r.err = err
	r.done.Done()
}
