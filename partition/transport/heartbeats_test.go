package transport

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/kit"
)

// TestHeartbeatsAreAligned: heartbeats wait for the next beat of the wall clock, but not while raft waits for one. As long as
// the peer answers fast, it is one that all groups have in common; none is later than commonBeat intervals after the one before
// unless raft is.
func TestHeartbeatsAreAligned(t *testing.T) {
	t.Parallel()
	const interval = 50 * time.Millisecond
	const common = commonBeat * interval
	synctest.Test(t, func(t *testing.T) {
		tr := Transport{heartbeats: newHeartbeats()}
		await := func() time.Duration {
			begun := time.Now()
			tr.heartbeats.awaitBeat("peer", interval, nil)
			return time.Since(begun)
		}
		late := func(d time.Duration) time.Duration { return time.Duration(time.Now().UnixNano()) % d }
		for _, after := range []time.Duration{0, 1, 49 * time.Millisecond} {
			<-time.After(2*common + after) // raft is late: the next beat
			if await(); late(interval) != 0 {
				t.Errorf("sent %v after a beat", late(interval))
			}
		}
		last := time.Now()
		for i, ms := range []int{100, 199, 100, 100, 249, 260, 120, 100, 150} { // raft's pause and the time of the answer
			after := time.Duration(ms) * time.Millisecond
			<-time.After(after)
			await()
			if took := time.Since(last); took > max(common, after+interval) || late(interval) != 0 {
				t.Errorf("heartbeat %d was sent %v after the one before, %v after a beat", i, took, late(interval))
			}
			last = time.Now()
			if i == 1 || i == 4 || i == 8 {
				if late(common) != 0 {
					t.Errorf("heartbeat %d was sent %v after a beat that groups have in common", i, late(common))
				}
			}
		}
		waited := make(chan time.Duration)
		go func() { waited <- await() }()
		synctest.Wait()
		done := tr.Urgent()
		if took := <-waited + await(); took != 0 {
			t.Errorf("heartbeats that are urgent waited %v", took)
		}
		done()
		if took := await(); took > common {
			t.Errorf("the next one waited %v", took)
		}
	})
}

// TestPipelineRepeatsNothing: a request that says nothing new is sent only after repeatInterval or a heartbeat that has failed or was refused,
// and is not answered.
func TestPipelineRepeatsNothing(t *testing.T) {
	t.Parallel()
	s, _, answer := framedPair(t)
	tr := Transport{cfg: new(Config), heartbeats: newHeartbeats()}
	p := kit.Must(newPipeline(tr, "peer", s))(t)
	defer func() { _ = p.Close() }()
	ask := func(what string, prev, commit uint64, entries []*raft.Log, want bool) {
		t.Helper()
		begun := p.said.at
		if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: prev, LeaderCommitIndex: commit, Entries: entries}, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		if sent := p.said.at != begun; sent != want {
			t.Errorf("%s: sent is %t", what, sent)
		}
		p.mu.Lock()
		waiting := len(p.sent)
		p.mu.Unlock()
		if waiting > 0 != want {
			t.Errorf("%s: %d requests wait for an answer", what, waiting)
		}
		if want {
			answer()
			<-p.Consumer()
			kit.Eventually(t, "the answer is with raft", func() bool { return len(p.inFlight) == 0 })
		}
	}
	ask("the first request", 0, 0, nil, true)
	ask("the same", 0, 0, nil, false)
	ask("an entry", 0, 0, []*raft.Log{{Index: 1, Term: 1}}, true)
	ask("the end of the entry again", 1, 0, nil, false)
	ask("a new commit index", 1, 1, nil, true)
	ask("the same commit index", 1, 1, nil, false)
	p.said.at = p.said.at.Add(-repeatInterval)
	ask("the same after a while", 1, 1, nil, true)
	tr.heartbeats.failures("peer").Add(1)
	tr.heartbeats.failures("other").Add(1)
	ask("the same after a failed heartbeat", 1, 1, nil, true)
	ask("the same after a failed heartbeat to another peer", 1, 1, nil, false)
	p.inFlight <- struct{}{} // raft spins while it waits for an answer, unless each request waits for one
	go func() {
		_, _ = p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1, LeaderCommitIndex: 1}, new(raft.AppendEntriesResponse))
	}()
	kit.Eventually(t, "it is sent while an answer is due", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.sent) == 1
	})
}

// TestLeaderLearnsOfALaterTermFromARefusedHeartbeat: raft ignores the later term in the answer to a heartbeat. The idle pipeline
// asks for it at once.
func TestLeaderLearnsOfALaterTermFromARefusedHeartbeat(t *testing.T) {
	t.Parallel()
	m := new(mesh)
	leader := m.open(t, "A", nil)
	var term atomic.Uint64
	term.Store(1)
	serve(t, m.open(t, "B", nil), func(rpc raft.RPC) {
		rpc.Respond(&raft.AppendEntriesResponse{Term: term.Load(), Success: term.Load() == 1}, nil)
	})
	heartbeat := func() {
		kit.OK(t, leader.AppendEntries("B.1", "B", &raft.AppendEntriesRequest{Term: 1}, new(raft.AppendEntriesResponse)))
	}
	p := kit.Must(leader.AppendEntriesPipeline("B.1", "B"))(t)
	defer func() { _ = p.Close() }()
	repeat := func() {
		kit.Must(p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1, LeaderCommitIndex: 1}, new(raft.AppendEntriesResponse)))(t)
	}
	repeat()
	<-p.Consumer()
	heartbeat()
	term.Store(2)
	heartbeat()
	repeat()
	if got := (<-p.Consumer()).Response(); got.Term != 2 || got.Success {
		t.Errorf("answered %+v", got)
	}
}

// TestIdlePipelineEndsWithItsStream: raft asks for a new pipeline to a follower that has restarted although it has nothing to send.
func TestIdlePipelineEndsWithItsStream(t *testing.T) {
	t.Parallel()
	s, _, answer := framedPair(t)
	p := kit.Must(newPipeline(Transport{cfg: new(Config), heartbeats: newHeartbeats()}, "peer", s))(t)
	ask := func() error {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1, LeaderCommitIndex: 1}, new(raft.AppendEntriesResponse))
		return err
	}
	kit.OK(t, ask())
	answer()
	<-p.Consumer()
	kit.Eventually(t, "the answer is with raft", func() bool { return len(p.inFlight) == 0 })
	if err := ask(); err != nil {
		t.Errorf("a request without news: %v", err)
	}
	kit.OK(t, s.conn.Close())
	<-p.closed
	if err := ask(); err == nil {
		t.Error("a request without news succeeds on a stream that has ended")
	}
}
