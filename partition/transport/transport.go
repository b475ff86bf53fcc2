package transport

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
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
	// WaitsForTerm reports whether this replica cannot store the next term for lack of space; see raftlog.Group. It may be nil.
	WaitsForTerm func() bool
	// OnRefusedSnapshot is called with the error of a replica that has not taken a snapshot. It must not block. It may be nil.
	OnRefusedSnapshot func(error)
	// HoldsBack reports whether this replica leaves elections to others for now. It may be nil.
	HoldsBack func() bool
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

// forward gives a request to raft. It returns false when the instance is closed.
func (t Transport) forward(rpc raft.RPC) bool {
	select {
	case t.consumer <- rpc:
		return true
	case <-t.cfg.Closed:
		return false
	}
}

// SetHeartbeatHandler leaves the heartbeat fast path off.
func (Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// Urgent sends heartbeats at once until done is called: raft waits for one of them.
func (t Transport) Urgent() (done func()) {
	b := t.heartbeats
	b.mu.Lock()
	defer b.mu.Unlock()
	b.urgent++
	close(b.hurry)
	b.hurry = make(chan struct{})
	return func() {
		b.mu.Lock()
		b.urgent--
		b.mu.Unlock()
	}
}
