package transport

import (
	"bufio"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	idleStreamTimeout = time.Minute // a kept stream is closed after one to two of these without a request
)

// errNotStored is the answer to entries that could not be stored.
var errNotStored = errors.New("the entries could not be stored")

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

// acceptStreams serves the streams that peers open.
func (t Transport) acceptStreams() {
	for {
		conn, err := t.cfg.Streams.accept()
		if err != nil {
			return
		}
		t.receptions.running.Go(func() {
			err := t.serveStream(conn)
			_ = conn.Close()
			if malformed := malformedError(""); errors.As(err, &malformed) {
				t.cfg.Logger.Error("closed a stream of a peer", "peer", conn.peer, "error", err)
			}
		})
	}
}

// serveStream passes the requests of a stream to raft, one after the other, until the stream ends.
func (t Transport) serveStream(conn *trackedConn) error {
	r := bufio.NewReaderSize(conn, requestBufferBytes)
	answers := make(chan raft.RPCResponse, 1)
	var out []byte
	for {
		f, err := readFrame(r, frameBytesMax)
		if err != nil {
			return err
		}
		request, err := decodeRequest(&f)
		if err != nil {
			return err
		}
		rpc := raft.RPC{Command: request, RespChan: answers}
		install, isInstall := request.(*raft.InstallSnapshotRequest)
		if isInstall {
			rpc.Reader = io.LimitReader(r, install.Size)
		}
		failed := t.failedAppends()
		if !t.pass(rpc) {
			return errClosed
		}
		select {
		case answer := <-answers:
			if t.failedAppends() != failed {
				answer = refusalAsError(answer)
			}
			if out, err = appendAnswer(out[:0], f.kind, answer); err != nil {
				return err
			}
		case <-t.cfg.Closed:
			return errClosed
		}
		if _, err := conn.Write(out); err != nil || isInstall {
			return err // what remains of a snapshot is no request
		}
	}
}

func (t Transport) failedAppends() uint64 {
	if t.cfg.FailedAppends == nil {
		return 0
	}
	return t.cfg.FailedAppends()
}

// refusalAsError turns a refusal of entries into an error. Raft refuses entries that its log cannot store, as on a full disk, like
// entries that do not follow its log. The leader would send one earlier entry with each try, beyond the beginning of
// the follower's log, and then a snapshot of which the follower has more.
func refusalAsError(answer raft.RPCResponse) raft.RPCResponse {
	if got, is := answer.Response.(*raft.AppendEntriesResponse); is && !got.Success && !got.NoRetryBackoff && answer.Error == nil {
		answer.Error = errNotStored
	}
	return answer
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
