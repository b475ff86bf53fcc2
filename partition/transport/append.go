package transport

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm/planted"
)

const (
	// requestBytesMax bounds the entries of one AppendEntries request, unless a single one is larger. Raft bounds
	// only their number.
	requestBytesMax = 4 << 20
	// appendTimeMax is the time after which AppendEntries begins no further request: raft counts what the follower
	// holds, and learns of changes, when AppendEntries returns.
	appendTimeMax = 5 * time.Second
)

// fitting returns how many of the first entries one request carries, at least one of them.
func fitting(entries []*raft.Log) int {
	size := 0
	for i, e := range entries {
		size += len(e.Data) + len(e.Extensions)
		if i > 0 && size > requestBytesMax && !planted.Active(planted.RequestWithoutByteBound) || i == frameEntriesMax {
			return i
		}
	}
	return len(entries)
}

// pieceOf returns the request that carries the entries from the given position on that fit, and the position
// behind them.
//
// Raft's follower takes everything that it has up to the commit index for committed, also entries behind those of
// the request that may be of another leader (raft 1.7.3, appendEntries). So a request never has a commit index
// behind its last entry, as the Raft paper demands.
func pieceOf(args *raft.AppendEntriesRequest, from int) (*raft.AppendEntriesRequest, int) {
	next := from + fitting(args.Entries[from:])
	piece := *args
	piece.Entries = args.Entries[from:next]
	if from > 0 {
		piece.PrevLogEntry, piece.PrevLogTerm = args.Entries[from-1].Index, args.Entries[from-1].Term
	}
	last := piece.PrevLogEntry
	if n := len(piece.Entries); n > 0 {
		last = piece.Entries[n-1].Index
	}
	if !planted.Active(planted.CommitBehindSent) {
		piece.LeaderCommitIndex = min(piece.LeaderCommitIndex, last)
	}
	return &piece, next
}

// AppendEntries sends the entries in requests of requestBytesMax. Raft takes args.Entries, which it reads again
// afterwards, for what the follower holds (raft 1.7.3, updateLastAppended). So AppendEntries succeeds only if the
// follower has taken all of args.Entries, or shortens args.Entries to those that it has taken; raft sends the
// others with the next call.
func (t Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 { // raft 1.7.3, heartbeat
		t.heartbeats.awaitBeat(id, t.cfg.BeatInterval, t.cfg.Closed)
		err := t.sendEntries(id, target, args, resp)
		if err != nil || !resp.Success {
			t.heartbeats.failures(id).Add(1)
		}
		if err == nil {
			t.heartbeats.notify(id)
		}
		return err
	}
	t.limitCommit(args)
	begun := time.Now()
	for taken := 0; ; {
		piece, next := pieceOf(args, taken)
		var answer raft.AppendEntriesResponse
		err := t.appendPiece(id, target, piece, &answer, taken == 0 || planted.Active(planted.CountPiecesLate))
		switch {
		case err != nil && taken == 0:
			return err
		case err == nil:
			*resp = answer
			if !answer.Success || answer.Term > args.Term {
				return nil
			}
			taken = next
		}
		if planted.Active(planted.FollowerCountsUnsent) {
			return nil
		}
		if err != nil || taken == len(args.Entries) || time.Since(begun) > appendTimeMax || !t.stillLeads(id, args.Term) {
			args.Entries = args.Entries[:taken]
			return nil //nolint:nilerr // what was taken is a success; raft tries the rest
		}
	}
}

// limitCommit lowers the commit index of a request to what is on this leader's disk. Raft counts the leader as one of the quorum
// before it has written the entries, and no other replica may take them for committed then.
func (t Transport) limitCommit(args *raft.AppendEntriesRequest) {
	if t.cfg.Stored != nil && !planted.Active(planted.CommitUnstored) {
		args.LeaderCommitIndex = min(args.LeaderCommitIndex, t.cfg.Stored())
	}
}

// limitedPipeline is a pipeline of which each request passes limitCommit.
type limitedPipeline struct {
	raft.AppendPipeline
	transport Transport
}

// AppendEntries implements raft.AppendPipeline.
func (p limitedPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.transport.limitCommit(args)
	return p.AppendPipeline.AppendEntries(args, resp)
}

// appendPiece sends entries. Raft counts the pieces that the follower has taken when AppendEntries returns, so only the
// first one waits for a peer that does not answer.
func (t Transport) appendPiece(id raft.ServerID, target raft.ServerAddress, piece *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse, first bool) error {
	if first {
		return t.appendUntilAnswered(id, target, piece, answer)
	}
	return t.sendEntries(id, target, piece, answer)
}

func (t Transport) sendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return send(t, id, target, args, resp, nil, t.NetworkTransport.AppendEntries)
}

// appendUntilAnswered sends entries again that could not be sent, as soon as the peer answers a heartbeat. Raft
// would retry them with a backoff of up to ten seconds: a member that returns gets nothing meanwhile, and is
// far behind when it is needed. Heartbeats are sent at least twice a second. A request that fails although
// heartbeats are answered is left to raft.
func (t Transport) appendUntilAnswered(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for answered := false; ; {
		beat := t.heartbeats.wait(id)
		err := t.sendEntries(id, target, args, resp)
		if err == nil || answered || !t.stillLeads(id, args.Term) {
			return err
		}
		look := time.NewTimer(heartbeatWaitMax)
		select {
		case <-beat:
			answered = true
		case <-look.C:
		case <-t.cfg.Closed:
		}
		look.Stop()
		if !t.stillLeads(id, args.Term) {
			return err
		}
	}
}

// stillLeads reports whether this replica is the leader in that term and the group contains the other.
func (t Transport) stillLeads(id raft.ServerID, term uint64) bool {
	select {
	case <-t.cfg.Closed:
		return false
	default:
	}
	r := t.raft.Load()
	return r == nil || r.State() == raft.Leader && r.CurrentTerm() == term &&
		slices.ContainsFunc(r.GetConfiguration().Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// AppendEntriesPipeline opens a pipeline that ends with the first answer after which raft stops reading (raft
// 1.7.3, pipelineDecode).
func (t Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.openPipeline(id, replicaAddress(id, target))
	if err != nil {
		return nil, err
	}
	return limitedPipeline{p, t}, nil
}

func (t Transport) openPipeline(id raft.ServerID, address raft.ServerAddress) (raft.AppendPipeline, error) {
	s, err := t.framedStream(address)
	if err != nil {
		return nil, err
	}
	if s != nil {
		return newFramedPipeline(s, t.heartbeats.failures(id))
	}
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, address)
	if err != nil {
		return nil, err
	}
	p := &pipeline{
		AppendPipeline: inner, answers: make(chan raft.AppendFuture), closed: make(chan struct{}),
		pieces: make(map[*raft.AppendEntriesRequest]sentPiece),
	}
	go p.relay()
	return p, nil
}

// pipeline wraps raft's pipeline so that it cannot deadlock. Raft stops reading answers after a negative one
// but may still send: then the transport waits forever for a reader of the next answer, and the sender waits
// forever for the transport. The follower receives no entries while that leader leads, because
// heartbeats use another stream, and the raft instance cannot be shut down. Here the pipeline is closed after
// a negative answer, which is what raft itself does next, and the sender gets an error.
//
// It sends a request with more than requestBytesMax of entries in pieces, and answers it with the answer to the last
// piece, or with the first that is negative: raft takes the entries of an answered request for what the follower
// holds.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once

	mu     sync.Mutex
	pieces map[*raft.AppendEntriesRequest]sentPiece // sent and not answered
}

// sentPiece says what a piece belongs to.
type sentPiece struct {
	whole *raft.AppendEntriesRequest
	last  bool
}

// wholeFuture is the answer to a request that was sent in pieces.
type wholeFuture struct {
	raft.AppendFuture // of the piece that decided it
	request           *raft.AppendEntriesRequest
}

// Request implements raft.AppendFuture.
func (f wholeFuture) Request() *raft.AppendEntriesRequest { return f.request }

// AppendEntries implements raft.AppendPipeline. When it returns without an error, all of args.Entries were sent.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	for sent := 0; ; {
		piece, next := pieceOf(args, sent)
		last := next == len(args.Entries) || planted.Active(planted.FollowerCountsUnsent)
		p.mu.Lock()
		p.pieces[piece] = sentPiece{whole: args, last: last}
		p.mu.Unlock()
		answer := resp
		if !last {
			answer = new(raft.AppendEntriesResponse)
		}
		f, err := p.AppendPipeline.AppendEntries(piece, answer)
		if err != nil {
			return nil, err
		}
		if last {
			return wholeFuture{f, args}, nil
		}
		sent = next
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.AppendPipeline.Close()
}

// relay forwards the answers.
func (p *pipeline) relay() {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			p.mu.Lock()
			piece := p.pieces[f.Request()]
			delete(p.pieces, f.Request())
			p.mu.Unlock()
			// A failed request has an empty answer.
			refused := !f.Response().Success || f.Response().Term > f.Request().Term
			if !refused && !piece.last {
				continue
			}
			select {
			case p.answers <- wholeFuture{f, piece.whole}: // raft owns it from here
			case <-p.closed:
				return
			}
			if refused {
				_ = p.Close()
				return
			}
		case <-p.closed:
			return
		}
	}
}
