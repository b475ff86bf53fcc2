package transport

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/kit"
)

// Raft addresses a vote request to a member, not to a replica: a replica that has replaced another on its
// member must not vote in its name.
func TestVoteAskedOfAnotherReplicaIsRefused(t *testing.T) {
	t.Parallel()
	open := func(replica string) (Transport, *raft.NetworkTransport) {
		inner, err := raft.NewTCPTransportWithConfig("127.0.0.1:0", nil, &raft.NetworkTransportConfig{
			Timeout: streamRequestTimeout, Logger: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		t.Cleanup(func() {
			_ = inner.Close()
			inner.CloseStreams()
			close(ended)
		})
		return New(inner, replica, ended, nil), inner
	}
	candidate, _ := open("A.1")
	voter, inner := open("B.7")
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case rpc := <-voter.Consumer():
				rpc.Respond(&raft.RequestVoteResponse{Term: 3, Granted: true}, nil)
			case <-stop:
				return
			}
		}
	}()
	//nolint:staticcheck // Candidate is what names the replica
	for asked, want := range map[raft.ServerID]bool{"B.4": false, "B.7": true, "B.70": false} {
		var got raft.RequestVoteResponse
		request := raft.RequestVoteRequest{Term: 3, Candidate: []byte("A")}
		if err := candidate.RequestVote(asked, inner.LocalAddr(), &request, &got); err != nil {
			t.Fatal(err)
		}
		if got.Granted != want || string(request.Candidate) != "A" {
			t.Errorf("%s is asked: %+v", asked, got)
		}
	}
	// A request that names no replica is decided by raft alone.
	var got raft.RequestVoteResponse
	plain := raft.RequestVoteRequest{Term: 3, Candidate: []byte("A")} //nolint:staticcheck // likewise
	if err := candidate.NetworkTransport.RequestVote("B.4", inner.LocalAddr(), &plain, &got); err != nil || !got.Granted {
		t.Errorf("nobody is named: %+v, %v", got, err)
	}
}

// Raft stops reading after a negative answer and may still send: if that sender waited forever, the follower
// would get nothing and the group could not close.
func TestPipelineEndsWithARefusal(t *testing.T) {
	t.Parallel()
	open := func() *raft.NetworkTransport {
		tr, err := raft.NewTCPTransportWithConfig("127.0.0.1:0", nil, &raft.NetworkTransportConfig{
			MaxRPCsInFlight: requestsInFlight, Timeout: streamRequestTimeout, Logger: hclog.NewNullLogger(),
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
			follower, leader := open(), Transport{NetworkTransport: open()}
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
			go func() { // no goroutine reads answers now
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

// Entries for an unreachable peer are sent as soon as it answers a heartbeat: raft alone would wait ten
// seconds for the next try.
func TestEntriesWaitForAHeartbeat(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(address string) *raft.NetworkTransport {
		tr, err := raft.NewTCPTransportWithConfig(address, nil, &raft.NetworkTransportConfig{
			Timeout: streamRequestTimeout, Logger: hclog.NewNullLogger(),
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
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	leader := New(open("127.0.0.1:0"), "A.1", ended, nil)
	ask := func(commit uint64) error {
		return leader.AppendEntries("B.1", raft.ServerAddress(address),
			&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: commit, LeaderCommitIndex: commit}, new(raft.AppendEntriesResponse))
	}
	sent := make(chan error, 1)
	go func() { sent <- ask(7) }()
	if err := ask(0); err == nil {
		t.Fatal("a heartbeat reached nobody")
	}
	back := open(address)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case rpc := <-back.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
			case <-stop:
				return
			}
		}
	}()
	kit.Eventually(t, "the entries get there", func() bool {
		if err := ask(0); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-sent:
			if err != nil {
				t.Fatalf("the entries were given up: %v", err)
			}
			return true
		default:
			return false
		}
	})
}

// The heartbeat fast path of raft must stay off: on it replicas diverge.
func TestHeartbeatsUseTheMainGoroutine(t *testing.T) {
	t.Parallel()
	var tr raft.Transport = Transport{}
	tr.SetHeartbeatHandler(func(raft.RPC) { t.Error("installed") })
	if _, ok := tr.(raft.WithPreVote); !ok {
		t.Error("pre-vote is lost")
	}
	if _, ok := tr.(raft.WithClose); !ok {
		t.Error("close is lost")
	}
}
