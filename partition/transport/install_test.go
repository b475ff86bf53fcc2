package transport

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/kit"
)

// receiver receives snapshots into nothing.
type receiver struct{ ended chan error }

func (r receiver) receive(_ *raft.InstallSnapshotRequest, from io.Reader) (io.Reader, func(), error) {
	_, err := io.Copy(io.Discard, from)
	r.ended <- err
	return strings.NewReader("whole"), func() {}, err
}

// stalledReader gives some bytes and then none until released.
type stalledReader struct {
	left     int
	stalled  chan struct{}
	released chan struct{}
}

func newStalledReader(bytes int) *stalledReader {
	return &stalledReader{left: bytes, stalled: make(chan struct{}), released: make(chan struct{})}
}

func (r *stalledReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		close(r.stalled)
		<-r.released
		return 0, errors.New("the sender ended")
	}
	n := min(r.left, len(b))
	r.left -= n
	return n, nil
}

// TestSnapshotReachesRaftWhole: raft gets the request when the snapshot is here, other requests meanwhile; a sender that
// stalls is given up, and another one is served in its place.
func TestSnapshotReachesRaftWhole(t *testing.T) {
	t.Parallel()
	var m mesh
	leader := m.open(t, "A", nil)
	r := receiver{ended: make(chan error, 8)}
	// The sender must not stall for that long by itself, also on a busy machine.
	f := m.open(t, "B", func(c *Config) { c.Receive, c.StallTimeout = r.receive, 3*time.Second })
	serve(t, f, func(rpc raft.RPC) {
		if _, is := rpc.Command.(*raft.InstallSnapshotRequest); !is {
			rpc.Respond(&raft.RequestVoteResponse{Term: 9}, nil)
			return
		}
		whole, err := io.ReadAll(rpc.Reader)
		rpc.Respond(&raft.InstallSnapshotResponse{Term: 1, Success: string(whole) == "whole"}, err)
	})
	stall := newStalledReader(4 << 20)
	given := make(chan error, 1)
	install := func(size int64, from io.Reader) error {
		var answer raft.InstallSnapshotResponse
		err := leader.InstallSnapshot("B.1", "B", &raft.InstallSnapshotRequest{Term: 1, Size: size}, &answer, from)
		if err == nil && !answer.Success {
			err = errors.New("not installed")
		}
		return err
	}
	go func() { given <- install(1<<30, stall) }()
	<-stall.stalled
	var vote raft.RequestVoteResponse
	if err := leader.RequestVote("B.1", "B", &raft.RequestVoteRequest{Term: 2}, &vote); err != nil || vote.Term != 9 {
		t.Errorf("while a snapshot arrives, a vote is answered %+v, %v", vote, err)
	}
	if err := <-r.ended; err == nil {
		t.Error("a snapshot whose sender stalls was received")
	}
	close(stall.released)
	if err := <-given; err == nil {
		t.Error("a snapshot whose sender stalls was installed")
	}
	kit.Eventually(t, "the next snapshot is installed", func() bool { // idle streams have ended too
		return install(5, strings.NewReader("bytes")) == nil
	})
}

// TestLaterSnapshotReplacesTheOneInProgress: the leader of a later term does not wait for the end of what its
// predecessor sends, and a predecessor does not end what its successor sends.
func TestLaterSnapshotReplacesTheOneInProgress(t *testing.T) {
	t.Parallel()
	running := &reception{from: strings.NewReader(strings.Repeat("x", 100)), term: 5, ended: make(chan struct{})}
	closed := make(chan struct{})
	var rs receptions
	kit.OK(t, rs.begin(running, closed))
	if err := rs.begin(&reception{term: 4}, closed); !errors.Is(err, errOlderTerm) {
		t.Errorf("an older term: %v", err)
	}
	begun := make(chan error, 1)
	go func() { begun <- rs.begin(&reception{term: 5, ended: make(chan struct{})}, closed) }()
	kit.Eventually(t, "the running one is told", running.superseded.Load)
	if _, err := io.Copy(io.Discard, running); !errors.Is(err, errSuperseded) {
		t.Errorf("the running one: %v", err)
	}
	rs.end(running)
	if err := <-begun; err != nil {
		t.Error(err)
	}
	close(closed)
	if err := rs.begin(&reception{term: 6}, closed); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestNextSnapshotDoesNotWaitForTheRestOfARefusedOne: a sender that was refused may go on sending for as long as it
// likes; the next one is served meanwhile.
func TestNextSnapshotDoesNotWaitForTheRestOfARefusedOne(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	var m mesh
	tr := m.open(t, "B", func(c *Config) {
		c.Receive = func(*raft.InstallSnapshotRequest, io.Reader) (io.Reader, func(), error) { return nil, nil, refused }
	})
	stall := newStalledReader(10)
	answers := make(chan raft.RPCResponse, 1)
	go tr.receiveSnapshot(raft.RPC{Reader: stall, RespChan: answers}, &raft.InstallSnapshotRequest{Term: 1})
	<-stall.stalled // the rest of the refused snapshot is being read
	next := &reception{term: 1, ended: make(chan struct{})}
	begun := make(chan error, 1)
	go func() { begun <- tr.receptions.begin(next, tr.cfg.Closed) }()
	if err := <-begun; err != nil {
		t.Error(err)
	}
	close(stall.released)
	if answer := <-answers; !errors.Is(answer.Error, refused) {
		t.Errorf("the refused sender is answered %v", answer.Error)
	}
}
