package transport

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// mesh connects transports over loopback. A member has one replica of the one group.
type mesh struct {
	mu        sync.Mutex
	addresses map[fsm.MemberID]string
	wrap      func(net.Conn) net.Conn // of the dialled connections; may be nil
	host      *simnet.Host            // in a bubble; nil: sockets of the operating system
}

func (m *mesh) listen() (net.Listener, error) {
	if m.host == nil {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	return m.host.Listen(len(m.addresses))
}

// open creates the transport of a replica.
func (m *mesh) open(t testing.TB, member fsm.MemberID, tune func(*Config)) Transport {
	t.Helper()
	listener := kit.Must(m.listen())(t)
	m.mu.Lock()
	if m.addresses == nil {
		m.addresses = make(map[fsm.MemberID]string)
	}
	m.addresses[member] = listener.Addr().String()
	m.mu.Unlock()
	s := NewStreams(StreamConfig{Member: member, Dial: m.dial, OnPeerEnd: func() {}})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.Accepted(fsm.MemberID(conn.RemoteAddr().String()), conn)
		}
	}()
	closed := make(chan struct{})
	cfg := Config{Streams: s, Logger: hclog.NewNullLogger(), Closed: closed}
	if tune != nil {
		tune(&cfg)
	}
	tr := New(cfg)
	t.Cleanup(func() {
		_ = listener.Close()
		_ = tr.Close()
		close(closed)
		tr.WaitReceptions()
	})
	return tr
}

func (m *mesh) dial(ctx context.Context, to fsm.MemberID, _ fsm.PartitionID, _ string) (net.Conn, error) {
	m.mu.Lock()
	address, wrap := m.addresses[to], m.wrap
	m.mu.Unlock()
	dial := new(net.Dialer).DialContext
	if m.host != nil {
		dial = m.host.Dial
	}
	conn, err := dial(ctx, "tcp", address)
	if err == nil && wrap != nil {
		conn = wrap(conn)
	}
	return conn, err
}

// serve answers the requests to a replica until the test ends.
func serve(t testing.TB, tr Transport, answer func(raft.RPC)) {
	t.Helper()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case rpc := <-tr.Consumer():
				answer(rpc)
			case <-stop:
				return
			}
		}
	}()
}

// Raft stops reading after a negative answer and may still send: if that sender waited forever, the follower
// would get nothing and the group could not close.
func TestPipelineEndsWithARefusal(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]raft.AppendEntriesResponse{
		"not accepted": {Term: 1}, "a newer term": {Term: 2, Success: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := new(mesh)
			leader, follower := m.open(t, "A", nil), m.open(t, "B", nil)
			answers := []raft.AppendEntriesResponse{{Term: 1, Success: true}, refusal}
			n := 0
			serve(t, follower, func(rpc raft.RPC) {
				rpc.Respond(&answers[min(n, 1)], nil)
				n++
			})
			p := kit.Must(leader.AppendEntriesPipeline("B.1", "B"))(t)
			var commit uint64
			send := func() error {
				commit++ // otherwise the request says nothing new and is not sent
				_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: commit}, new(raft.AppendEntriesResponse))
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
				t.Error("the sender waits forever")
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
	var m mesh
	leader := m.open(t, "A", nil)
	ask := func(commit uint64) error {
		return leader.AppendEntries("B.1", "B",
			&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: commit, LeaderCommitIndex: commit}, new(raft.AppendEntriesResponse))
	}
	sent := make(chan error, 1)
	go func() { sent <- ask(7) }()
	if err := ask(0); err == nil {
		t.Fatal("a heartbeat reached nobody")
	}
	back := m.open(t, "B", nil)
	serve(t, back, func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil) })
	kit.Eventually(t, "the entries get there", func() bool {
		kit.OK(t, ask(0))
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
