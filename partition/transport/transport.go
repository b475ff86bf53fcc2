package transport

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	acceptedWaitingMax  = 16                     // raft streams accepted and not yet taken by the transport
	idleStreamsPerPeer  = 3                      // kept open for the next request
	idleStreamTimeout   = time.Minute            // a kept stream is closed after one to two of these without a request
	streamsPerPeerMax   = 16                     // opened by one peer; it needs one for entries, one for heartbeats and those that are idle
	requestsInFlight    = 2                      // AppendEntries on one stream; more was measured as worse
	staleStreamsTimeout = 500 * time.Millisecond // a dead stream fails at once
	heartbeatWaitMax    = 500 * time.Millisecond // entries are sent again after this time, also without a heartbeat
)

// Transport is a raft.Transport that sends requests as frames.
//
// It has no fast path for heartbeats, as raft's transport has. On that path heartbeats change term and
// state beside the main goroutine, and a leader that resumes after a pause can then write a client's command
// with the term of its successor: replicas diverge. Here heartbeats go through the main goroutine like all
// other requests.
//
// It lets a replica vote for a candidate that it does not know as a voter yet, as Raft's author specifies
// (dissertation, 4.2.2). The raft library refuses that: if the remaining voter with the newest log was
// promoted in an entry that the others do not have yet, no candidate is ever elected.
type Transport struct {
	cfg        *Config
	consumer   chan raft.RPC
	raft       *atomic.Pointer[raft.Raft] // nil until raft runs
	heartbeats *heartbeats
	receptions *receptions
	idle       *idleStreams
}

// Config configures a Transport.
type Config struct {
	Streams *Streams
	Logger  hclog.Logger
	Closed  <-chan struct{} // closed after Streams
	// OnRefusedVote is called for votes that raft has refused. It must not block. It may be nil.
	OnRefusedVote func(*raft.RequestVoteRequest)
	// Receive reads a snapshot that a leader sends. It returns what raft reads in its place, and a function that is
	// called when raft has answered. It is called from one goroutine at a time.
	Receive func(request *raft.InstallSnapshotRequest, from io.Reader) (whole io.Reader, done func(), err error)
	// StallTimeout ends the reception of a snapshot of which nothing arrives; 0 means receiveStallTimeout.
	StallTimeout time.Duration
	// BeatInterval is the time between the moments at which heartbeats are sent, see awaitBeat; 0 means at once.
	BeatInterval time.Duration
	// Stored returns an index up to which the log of this replica is on disk; see raftlog.Group. nil means all of it.
	Stored func() uint64
	// FailedAppends returns how often the log of this replica could not store entries. It may be nil.
	FailedAppends func() uint64
	// HoldsBack reports whether this replica leaves elections to others for now. It may be nil.
	HoldsBack func() bool
}

// errNotStored is the answer to entries that could not be stored.
var errNotStored = errors.New("the entries could not be stored")

var errHeldBack = errors.New("this replica leaves elections to others")

// New starts to forward incoming requests until cfg.Closed is closed.
func New(cfg Config) Transport {
	t := Transport{
		cfg: &cfg, consumer: make(chan raft.RPC), raft: new(atomic.Pointer[raft.Raft]),
		heartbeats: newHeartbeats(), receptions: new(receptions),
		idle: &idleStreams{kept: make(map[raft.ServerAddress][]*framedStream)},
	}
	t.receptions.running.Go(t.sweep)
	t.receptions.running.Go(t.acceptStreams)
	return t
}

// SetRaft sets the raft instance that uses the transport.
func (t Transport) SetRaft(r *raft.Raft) { t.raft.Store(r) }

// Requests returns the channel of requests to raft, to send it requests as if they came from a peer.
func (t Transport) Requests() chan<- raft.RPC { return t.consumer }

// Consumer returns the requests of peers that pass lets through.
func (t Transport) Consumer() <-chan raft.RPC { return t.consumer }

// LocalAddr returns the address of this replica, which is the id of its member.
func (t Transport) LocalAddr() raft.ServerAddress {
	return raft.ServerAddress(t.cfg.Streams.cfg.Member)
}

// EncodePeer returns an address as raft stores it.
func (Transport) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// DecodePeer is the reverse of EncodePeer.
func (Transport) DecodePeer(address []byte) raft.ServerAddress { return raft.ServerAddress(address) }

// Close closes all streams.
func (t Transport) Close() error { return t.cfg.Streams.Close() }

// RequestVote retries over stale streams.
func (t Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return retryStale(func() error { return t.send(id, target, args, resp, nil) })
}

// RequestPreVote retries over stale streams. It fails while this replica leaves elections to others.
func (t Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.cfg.HoldsBack != nil && t.cfg.HoldsBack() {
		return errHeldBack
	}
	return retryStale(func() error { return t.send(id, target, args, resp, nil) })
}

// TimeoutNow retries over stale streams.
func (t Transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return retryStale(func() error { return t.send(id, target, args, resp, nil) })
}

// InstallSnapshot sends a snapshot.
func (t Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.send(id, target, args, resp, data)
}

// retryStale repeats a failed request: the idle streams to a peer that was restarted are dead, and raft finds
// that out with a request. Raft asks for a vote only once, so without the retry a candidate would lose its
// campaign although the peer is healthy. Asking twice for the same vote is harmless. The retries end after
// staleStreamsTimeout.
func retryStale(request func() error) (err error) {
	begun := time.Now()
	for range idleStreamsPerPeer + 1 {
		err = request()
		if err == nil || errors.Is(err, syscall.ECONNREFUSED) || time.Since(begun) > staleStreamsTimeout {
			return err
		}
	}
	return err
}

// sweep releases what is held for replicas to which this one sends nothing any more.
func (t Transport) sweep() {
	look := time.NewTicker(idleStreamTimeout)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			t.idle.closeUnused()
			if r := t.raft.Load(); r != nil {
				t.heartbeats.forgetAllBut(r.GetConfiguration().Configuration().Servers)
			}
		case <-t.cfg.Closed:
			return
		}
	}
}

// pass passes a request of a peer to raft. It returns false when the instance is closed.
func (t Transport) pass(rpc raft.RPC) bool {
	if install, is := rpc.Command.(*raft.InstallSnapshotRequest); is {
		t.receptions.running.Go(func() { t.receiveSnapshot(rpc, install) })
		return true
	}
	t.allowUnknownCandidate(rpc.Command)
	if vote, is := rpc.Command.(*raft.RequestVoteRequest); is && t.cfg.OnRefusedVote != nil {
		rpc.RespChan = t.observeVote(vote, rpc.RespChan)
	}
	return t.forward(rpc)
}

// forward gives a request to raft. It returns false when the instance is closed.
func (t Transport) forward(rpc raft.RPC) bool {
	select {
	case t.consumer <- rpc:
		return true
	case <-t.cfg.Closed:
		return false
	}
}

// observeVote forwards the answer to a vote request, and reports a refusal.
func (t Transport) observeVote(vote *raft.RequestVoteRequest, to chan<- raft.RPCResponse) chan<- raft.RPCResponse {
	answers := make(chan raft.RPCResponse, 1)
	go func() {
		select {
		case answer := <-answers:
			to <- answer // the channel is buffered
			if got, is := answer.Response.(*raft.RequestVoteResponse); is && !got.Granted && answer.Error == nil {
				t.cfg.OnRefusedVote(vote)
			}
		case <-t.cfg.Closed:
		}
	}()
	return answers
}

// allowUnknownCandidate makes raft accept a candidate that is not a voter in this replica's configuration: it
// removes the id by which raft looks the candidate up, or replaces it by that of a voter where raft requires
// one. Raft uses the id for nothing else (1.7.3, requestVote and requestPreVote); it stores votes by address.
func (t Transport) allowUnknownCandidate(command any) {
	r := t.raft.Load()
	if r == nil {
		return
	}
	voter := raft.ServerID("")
	known := func(id []byte) bool {
		for _, s := range r.GetConfiguration().Configuration().Servers {
			if s.Suffrage == raft.Voter {
				voter = s.ID
				if string(s.ID) == string(id) {
					return true
				}
			}
		}
		return false
	}
	switch request := command.(type) {
	case *raft.RequestVoteRequest:
		if !known(request.ID) {
			request.ID = nil
		}
	case *raft.RequestPreVoteRequest:
		if !known(request.ID) {
			request.ID = []byte(voter)
		}
	}
}

// SetHeartbeatHandler leaves the heartbeat fast path off.
func (Transport) SetHeartbeatHandler(func(raft.RPC)) {}
