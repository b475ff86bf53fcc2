package transport

import (
	"bufio"
	"context"
	"maps"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestUnusedStreamsAreClosed: a replica that is asked nothing any more, because it was removed or this replica does not lead, costs
// no streams, and one that was removed nothing at all. What is in use stays.
func TestUnusedStreamsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dialled := 0
		s := NewStreams(StreamConfig{Member: "A", Dial: func(context.Context, fsm.MemberID, fsm.PartitionID, string) (net.Conn, error) {
			near, far := net.Pipe()
			go answerAll(far)
			dialled++
			return near, nil
		}})
		closed := make(chan struct{})
		tr := New(Config{Streams: s, Closed: closed})
		r := idleRaft(t, tr, "F.1", "D.1")
		defer func() {
			_ = r.Shutdown().Error()
			_ = s.Close()
			close(closed)
			tr.WaitReceptions()
		}()
		heartbeat := func(id raft.ServerID, member raft.ServerAddress) {
			if err := tr.AppendEntries(id, member, &raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse)); err != nil {
				t.Error(err)
			}
		}
		check := func(when string, want map[fsm.MemberID]int) {
			t.Helper()
			synctest.Wait()
			got := make(map[fsm.MemberID]int)
			s.mu.Lock()
			for c := range s.open {
				got[c.peer]++
			}
			s.mu.Unlock()
			if !maps.Equal(got, want) {
				t.Errorf("%s, streams to %v are open, want %v", when, got, want)
			}
		}
		heartbeat("B.1", "B") // is removed
		p := kit.Must(tr.AppendEntriesPipeline("F.1", "F"))(t)
		defer func() { _ = p.Close() }()
		heartbeat("F.1", "F")
		kit.OK(t, tr.RequestVote("D.1", "D", new(raft.RequestVoteRequest), new(raft.RequestVoteResponse)))
		failures := tr.heartbeats.failures("F.1")
		check("at first", map[fsm.MemberID]int{"B": 1, "F": 2, "D": 1})
		for range 8 {
			<-time.After(idleStreamTimeout / 4)
			heartbeat("F.1", "F")
		}
		check("after a while", map[fsm.MemberID]int{"F": 2})
		if dialled != 4 {
			t.Errorf("%d streams were dialled, want 4: one that is used was closed", dialled)
		}
		if peers := tr.heartbeats.peers; len(peers) != 1 || tr.heartbeats.failures("F.1") != failures {
			t.Errorf("%v is known of heartbeats, want what was known of F.1", peers)
		}
		<-time.After(2 * idleStreamTimeout)
		check("without heartbeats", map[fsm.MemberID]int{"F": 1})
		if len(tr.idle.kept) != 0 {
			t.Errorf("%v is kept", tr.idle.kept)
		}
		heartbeat("F.1", "F")
	})
}

// answerAll answers requests in frames until the stream ends.
func answerAll(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for in := bufio.NewReader(conn); ; {
		f, err := readFrame(in, frameBytesMax)
		if err != nil {
			return
		}
		_, answer := newMessages(f.kind)
		frame, err := appendAnswer(nil, f.kind, raft.RPCResponse{Response: answer})
		if err != nil {
			return
		}
		if _, err := conn.Write(frame); err != nil {
			return
		}
	}
}

// idleRaft gives a transport an instance that knows a group without its own replica, so that it sends nothing.
func idleRaft(t *testing.T, tr Transport, group ...raft.ServerID) *raft.Raft {
	t.Helper()
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = raft.ServerID("A.1"), hclog.NewNullLogger()
	var servers raft.Configuration
	for _, id := range group {
		servers.Servers = append(servers.Servers, raft.Server{ID: id, Address: raft.ServerAddress(id)})
	}
	store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	kit.OK(t, raft.BootstrapCluster(conf, store, store, snapshots, tr, servers))
	r := kit.Must(raft.NewRaft(conf, nil, store, store, snapshots, tr))(t)
	tr.SetRaft(r)
	return r
}
