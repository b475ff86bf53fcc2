package partition

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// shortStore refuses entries, and no deletions, while it is short: at the end of a segment, a deletion still fits.
type shortStore struct {
	raftlog.Store

	short   atomic.Bool
	refused atomic.Int64
}

func (s *shortStore) StoreLogs(entries []*raft.Log) error {
	if s.short.Load() {
		s.refused.Add(1)
		return errDiskFull
	}
	return s.Store.StoreLogs(entries)
}

// shortStores holds the stores of members by their names.
type shortStores struct{ byMember sync.Map }

func (s *shortStores) tune(c *Config) {
	c.Log.WrapStore(func(inner raftlog.Store) raftlog.Store {
		store, ok := inner.(*shortStore)
		if !ok {
			store = &shortStore{Store: inner}
		}
		s.byMember.Store(c.Member, store)
		return store
	})
}

func (s *shortStores) of(m *member) *shortStore {
	found, _ := s.byMember.Load(m.id)
	store, _ := found.(*shortStore)
	return store
}

// deliver gives the raft instance of a replica a request for entries, as if from a leader.
func deliver(t *testing.T, g *Group, leader string, term, prev, prevTerm uint64, entries []*raft.Log) *raft.AppendEntriesResponse {
	t.Helper()
	inst := g.instance.Load()
	answers := make(chan raft.RPCResponse, 1)
	request := raft.RPC{RespChan: answers, Command: &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader + ".1"), Addr: []byte(leader)},
		Term:      term, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: entries,
	}}
	select {
	case inst.transport.Requests() <- request:
	case <-inst.closed:
		return &raft.AppendEntriesResponse{}
	}
	select {
	case a := <-answers:
		r, _ := a.Response.(*raft.AppendEntriesResponse)
		return r
	case <-inst.closed:
		return &raft.AppendEntriesResponse{}
	}
}

func noops(term, from, to uint64) (list []*raft.Log) {
	for i := from; i <= to; i++ {
		list = append(list, &raft.Log{Index: i, Term: term, Type: raft.LogNoop})
	}
	return list
}

// TestFailedAppendAfterTruncation checks that a follower that truncated its log, and had no space for the entries that replace the
// suffix, confirms no entry behind the deleted ones, and stores the new ones once there is space.
func TestFailedAppendAfterTruncation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores shortStores
		ms := newMembers(t, 3, func(c *Config) { patient(c); stores.tune(c) })
		f := ms[2] // the only one that runs: the test plays the leaders
		f.start(1)
		g, store := f.group(1), stores.of(f)
		if r := deliver(t, g, "m0", 5, 1, 1, noops(5, 2, 10)); !r.Success {
			t.Fatalf("entries of term 5: %+v", r)
		}
		former := g.instance.Load()
		store.short.Store(true)
		if r := deliver(t, g, "m1", 6, 8, 5, noops(6, 9, 9)); r.Success {
			t.Fatal("stored without space")
		}
		store.short.Store(false)
		kit.Eventually(t, "raft is reopened", func() bool { return g.instance.Load() != former })
		if r := deliver(t, g, "m0", 7, 10, 5, noops(7, 11, 11)); r.Success {
			t.Error("the follower confirmed an entry behind two that it has deleted")
		}
		if r := deliver(t, g, "m1", 8, 8, 5, noops(6, 9, 9)); !r.Success {
			t.Errorf("the follower does not take the entry with space: %+v", r)
		}
		if s := g.Status(); s.LogFirst != 1 || s.LogLast != 9 || s.LastIndex != 9 || s.Halted != nil {
			t.Errorf("the log is %d to %d, and raft's last index is %d; halted: %v", s.LogFirst, s.LogLast, s.LastIndex, s.Halted)
		}
	})
}

// TestFullDiskReopensRaftOncePerTruncation checks that a follower without space does not reopen raft for each append that the leader
// repeats: reopening reads the log.
func TestFullDiskReopensRaftOncePerTruncation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores shortStores
		ms := newMembers(t, 3, func(c *Config) { patient(c); stores.tune(c) })
		f := ms[2]
		f.start(1)
		g, store := f.group(1), stores.of(f)
		if r := deliver(t, g, "m0", 5, 1, 1, noops(5, 2, 10)); !r.Success {
			t.Fatalf("entries of term 5: %+v", r)
		}
		former := g.instance.Load()
		store.short.Store(true)
		deliver(t, g, "m1", 6, 8, 5, noops(6, 9, 9))
		kit.Eventually(t, "raft is reopened", func() bool { return g.instance.Load() != former })
		second := g.instance.Load()
		refused := store.refused.Load()
		for range 600 { // once a second for 10 minutes
			if r := deliver(t, g, "m1", 6, 8, 5, noops(6, 9, 9)); r.Success {
				t.Fatal("stored without space")
			}
		}
		if n := store.refused.Load() - refused; n < 600 {
			t.Errorf("the log tried to store the entries %d times, not 600", n)
		}
		if g.instance.Load() != second {
			t.Error("raft was reopened again without a truncation")
		}
		store.short.Store(false)
		if r := deliver(t, g, "m1", 6, 8, 5, noops(6, 9, 9)); !r.Success {
			t.Errorf("the follower does not take the entry with space: %+v", r)
		}
	})
}

// TestUnstoredConfigurationIsForgotten checks that a configuration that the leader could not store is in force nowhere: removing the
// replica again is a change that all replicas apply, also after a snapshot and a restart.
func TestUnstoredConfigurationIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores shortStores
		ms, a := threeReplicas(t, stores.tune)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		rest := others(ms, lm)
		victim, other := rest[0], rest[1]
		former := g.instance.Load()
		store := stores.of(lm)
		store.short.Store(true)
		err := g.RemoveReplica(t.Context(), string(victim.id)+".1")
		store.short.Store(false)
		if err == nil {
			t.Fatal("the replica was removed without space for the configuration")
		}
		kit.Eventually(t, "raft is reopened", func() bool { return g.instance.Load() != former })
		mustEventually(t, ms, a.next(), send(1, body(2)))
		transferTo(t, ms, lm)
		mustEventually(t, ms, a.next(), send(1, body(3)))
		if n := len(g.Status().Voters); n != 3 {
			t.Errorf("%d voters after a configuration that was not stored", n)
		}
		if err := g.Snapshot(t.Context()); err != nil {
			t.Error(err)
		}
		kit.OK(t, atLeader(t, ms, func(_ *member, g *Group) error { return g.RemoveReplica(t.Context(), string(victim.id)+".1") }))
		kit.Eventually(t, "the other replica knows of the removal", func() bool { return len(other.group(1).Status().Voters) == 2 })
		lm.stop()
		lm.start(1)
		for _, m := range []*member{lm, other} {
			kit.Eventually(t, "two voters", func() bool { return len(m.group(1).Status().Voters) == 2 })
		}
	})
}

// TestFormerLeaderGoesOnAfterAShortage checks that a leader that was cut off with entries of its own, and has no space when it returns,
// catches up once there is space.
func TestFormerLeaderGoesOnAfterAShortage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores shortStores
		ms, a := threeReplicas(t, stores.tune)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		rest := others(ms, lm)
		before, _ := g.log.LastIndex()
		lm.net.isolate(lm.id, true)
		for range 2 {
			g.Submit(fsm.AppendCommand(nil, a.next(), send(1, body(9))), func(Answer) {})
		}
		kit.Eventually(t, "it has entries that no other replica has", func() bool {
			last, _ := g.log.LastIndex()
			return last > before && g.log.Stored() > last
		})
		mustEventually(t, rest, a.next(), send(1, body(2)))
		store := stores.of(lm)
		store.short.Store(true)
		lm.net.isolate(lm.id, false)
		kit.Eventually(t, "it has no space", func() bool { return store.refused.Load() > 0 })
		store.short.Store(false)
		mustEventually(t, ms, a.next(), send(1, body(3)))
		kit.Eventually(t, "it has applied all entries", func() bool { return lm.group(1).Status().Applied >= anyLeader(ms).Status().Applied })
		sameEverywhere(t, ms)
	})
}
