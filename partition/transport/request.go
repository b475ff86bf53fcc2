package transport

import (
	"bufio"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const staleStreamsTimeout = 500 * time.Millisecond // a dead stream fails at once

var errHeldBack = errors.New("this replica leaves elections to others")

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
	err := t.send(id, target, args, resp, data)
	if err != nil && t.cfg.OnRefusedSnapshot != nil {
		t.cfg.OnRefusedSnapshot(err)
	}
	return err
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

// send sends a request and reads its answer. The stream of a snapshot is not used again.
func (t Transport) send(id raft.ServerID, target raft.ServerAddress, request, answer any, snapshot io.Reader) error {
	address := replicaAddress(id, target)
	s, err := t.stream(address)
	if err != nil {
		return err
	}
	err = s.call(request, answer, snapshot)
	var answered remoteError
	if reusable := err == nil || errors.As(err, &answered); reusable && snapshot == nil {
		t.idle.put(address, s)
	} else {
		_ = s.conn.Close()
	}
	return err
}

// stream returns a stream to a replica: an idle one, or else a new one.
func (t Transport) stream(address raft.ServerAddress) (*framedStream, error) {
	if s := t.idle.take(address); s != nil {
		return s, nil
	}
	conn, err := t.cfg.Streams.dial(address, streamRequestTimeout)
	if err != nil {
		return nil, err
	}
	return &framedStream{conn: conn, answers: bufio.NewReaderSize(conn, answerBufferBytes)}, nil
}
