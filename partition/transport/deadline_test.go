package transport

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/kit"
)

// deadlineConn reports the deadlines for reads, and sets none.
type deadlineConn struct {
	net.Conn
	set chan time.Time
}

func (c deadlineConn) SetReadDeadline(at time.Time) error {
	c.set <- at
	return nil
}

// framedPair returns a framed stream, the deadlines for its answers, and a function that answers a request on it.
func framedPair(t *testing.T) (s *framedStream, deadlines <-chan time.Time, answer func()) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	go func() { _, _ = io.Copy(io.Discard, far) }()
	c := deadlineConn{near, make(chan time.Time, 16)}
	conn := kit.Must(NewStreams(StreamConfig{}).track(&trackedConn{Conn: c}))(t)
	return &framedStream{conn: conn, answers: bufio.NewReader(conn)}, c.set, func() {
		frame, err := appendAnswer(nil, appendFrame, raft.RPCResponse{Response: &raft.AppendEntriesResponse{Term: 1, Success: true}})
		if err == nil {
			_, err = far.Write(frame)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func checkDeadline(t *testing.T, what string, deadlines <-chan time.Time, want time.Duration) {
	t.Helper()
	const late = 8 * time.Second // of a busy machine; the times that are compared differ by more
	if got := time.Until(<-deadlines); got > want || got < want-late {
		t.Errorf("%s has %v, want %v", what, got, want)
	}
}

// TestAnswerDeadlineFitsItsRequest: the time for an answer follows from the bytes of its own request and begins
// when it is the next one; while nothing is in flight, a pipeline has no deadline.
func TestAnswerDeadlineFitsItsRequest(t *testing.T) {
	t.Parallel()
	const large = requestBytesMax - 1<<10
	const largeTime = streamRequestTimeout + large*time.Second/streamBytesPerSecondMin
	s, deadlines, answer := framedPair(t)
	p := kit.Must(newPipeline(Transport{cfg: new(Config), heartbeats: newHeartbeats()}, "peer", s))(t)
	defer func() { _ = p.Close() }()
	if at := <-deadlines; !at.IsZero() {
		t.Errorf("before the first request: %v", at)
	}
	kit.Must(p.AppendEntries(largeRequest(1, large), new(raft.AppendEntriesResponse)))(t)
	checkDeadline(t, "a large request", deadlines, largeTime+time.Second)
	sent := make(chan error, 1)
	go func() {
		_, err := p.AppendEntries(largeRequest(1, 1), new(raft.AppendEntriesResponse))
		sent <- err
	}()
	kit.Eventually(t, "the second request is written", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.sent) == 2 && p.sent[1].written
	})
	if len(deadlines) != 0 {
		t.Error("a request that waits for another answer has changed the deadline")
	}
	answer()
	<-p.Consumer()
	checkDeadline(t, "a small one behind it", deadlines, streamRequestTimeout+time.Second)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	answer()
	<-p.Consumer()
	if at := <-deadlines; !at.IsZero() {
		t.Errorf("after the last answer: %v", at)
	}
}

// TestCallDeadlineFitsItsRequest: the same for single requests; a snapshot is loaded before it is answered.
func TestCallDeadlineFitsItsRequest(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	s, deadlines, answer := framedPair(t)
	go answer()
	kit.OK(t, s.call(largeRequest(1, size), new(raft.AppendEntriesResponse), nil))
	checkDeadline(t, "a request", deadlines, streamRequestTimeout+size*time.Second/streamBytesPerSecondMin+time.Second)
	go answer() // of another kind: the call fails
	install := &raft.InstallSnapshotRequest{Size: size}
	if err := s.call(install, new(raft.InstallSnapshotResponse), strings.NewReader(strings.Repeat("x", size))); err == nil {
		t.Error("an answer to another request was taken")
	}
	checkDeadline(t, "a snapshot", deadlines, streamRequestTimeout*size/streamBytesPerSecondMin)
	short := &raft.InstallSnapshotRequest{Size: 3}
	if err := s.call(short, new(raft.InstallSnapshotResponse), strings.NewReader("xx")); err == nil {
		t.Error("a snapshot that is too short was sent")
	}
}
