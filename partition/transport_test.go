package partition

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Raft reads no more after an answer that says no, and may still send: a sender that then
// waits for ever is a replica that gets nothing any more, and a group that cannot close.
func TestPipelineEndsWithARefusal(t *testing.T) {
	t.Parallel()
	open := func() *raft.NetworkTransport {
		tr, err := raft.NewTCPTransportWithConfig("127.0.0.1:0", nil, &raft.NetworkTransportConfig{
			MaxRPCsInFlight: requestsInFlight, Timeout: streamRequestTimeout, Logger: &raftLogger{to: testLogger(t), name: "raft"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = tr.Close()
			tr.CloseStreams()
		})
		return tr
	}
	for name, refusal := range map[string]raft.AppendEntriesResponse{
		"not accepted": {Term: 1}, "a newer term": {Term: 2, Success: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follower, leader := open(), safeTransport{open()}
			stop := make(chan struct{})
			t.Cleanup(func() { close(stop) })
			go func() {
				answers := []raft.AppendEntriesResponse{{Term: 1, Success: true}, refusal}
				for n := 0; ; n++ {
					select {
					case rpc := <-follower.Consumer():
						rpc.Respond(&answers[min(n, 1)], nil)
					case <-stop:
						return
					}
				}
			}()
			p, err := leader.AppendEntriesPipeline("follower", follower.LocalAddr())
			if err != nil {
				t.Fatal(err)
			}
			send := func() error {
				_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse))
				return err
			}
			for want := range 2 {
				if err := send(); err != nil {
					t.Fatalf("request %d: %v", want, err)
				}
				got := (<-p.Consumer()).Response()
				if last := got.Term > 1 || !got.Success; last != (want == 1) {
					t.Fatalf("answer %d: %+v", want, got)
				}
			}
			ended := make(chan struct{})
			go func() { // nobody reads answers now
				for send() == nil {
				}
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Error("the sender waits for ever")
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
