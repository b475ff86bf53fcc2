package transport

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// deafConn takes what is written to it.
type deafConn struct{ net.Conn }

func (deafConn) Write(b []byte) (int, error)      { return len(b), nil }
func (deafConn) SetWriteDeadline(time.Time) error { return nil }

// TestAnswerDeadlineFitsItsRequest: the time for an answer follows from the bytes of its own request, not from those
// that the stream has carried before or carries behind it.
func TestAnswerDeadlineFitsItsRequest(t *testing.T) {
	t.Parallel()
	const large, small = 4 << 20, 100
	type step struct {
		single   int // raft sends a request of so many bytes alone
		next     int // raft sends a request of so many bytes through a pipeline
		answered int // raft reads the next answer of the pipeline, to a request of so many bytes
	}
	for name, steps := range map[string][]step{
		"a heartbeat after entries": {{single: large}, {single: small}},
		"entries after a heartbeat": {{single: small}, {single: large}},
		"a pipeline": {
			{next: large}, {next: small}, {answered: large}, {next: large}, {answered: small}, {answered: large}, {next: small}, {answered: small},
		},
		"a pipeline on a stream that was used": {{single: large}, {next: small}, {answered: small}, {next: large}, {answered: large}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			c := &trackedConn{Conn: deafConn{}}
			for i, s := range steps {
				size := max(s.single, s.answered)
				var err error
				switch {
				case s.single != 0:
					err = c.SetDeadline(now.Add(streamRequestTimeout))
				case s.next != 0:
					err = c.SetWriteDeadline(now.Add(streamRequestTimeout))
				default:
					err = c.SetReadDeadline(now.Add(streamRequestTimeout))
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write(make([]byte, s.single+s.next)); err != nil {
					t.Fatal(err)
				}
				want := streamRequestTimeout + time.Duration(size)*time.Second/streamBytesPerSecondMin
				if got := c.answerDeadline(now).Sub(now); size != 0 && got != want {
					t.Errorf("step %d: the answer has %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestStreamsOfAPeerAreBounded: a peer that opens ever more streams loses those on which nothing arrives; one that it
// uses stays open, and so do those of other peers.
func TestStreamsOfAPeerAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStreams(StreamConfig{Member: "B", OnPeerEnd: func() {}})
	defer func() { _ = s.Close() }()
	open := func(from fsm.MemberID) (theirs, ours net.Conn) {
		theirs, far := net.Pipe()
		s.Accepted(from, false, far)
		ours, err := s.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return theirs, ours
	}
	use := func(theirs, ours net.Conn) bool {
		got := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(ours, make([]byte, 1))
			got <- err
		}()
		_, err := theirs.Write([]byte{1})
		return err == nil && <-got == nil
	}
	other, others := open("C")
	used, ours := open("A")
	for range 3 * streamsPerPeerMax {
		if !use(used, ours) {
			t.Fatal("a stream that is used was closed")
		}
		open("A")
	}
	if !use(other, others) {
		t.Error("the stream of another peer was closed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.open); n != streamsPerPeerMax+1 {
		t.Errorf("%d streams are open, want %d of one peer and one of the other", n, streamsPerPeerMax)
	}
}
