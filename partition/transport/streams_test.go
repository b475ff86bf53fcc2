package transport

import (
	"io"
	"net"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestStreamsOfAPeerAreBounded: a peer that opens ever more streams loses those on which nothing arrives; one that it
// uses stays open, and so do those of other peers.
func TestStreamsOfAPeerAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStreams(StreamConfig{Member: "B", OnPeerEnd: func() {}})
	defer func() { _ = s.Close() }()
	open := func(from fsm.MemberID) (theirs, ours net.Conn) {
		theirs, far := net.Pipe()
		s.Accepted(from, far)
		ours = kit.Must(s.accept())(t)
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
