package partition

import (
	"context"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/kit"
)

// blockByTerm blocks raft's main goroutine at a leader: the disk is full, and a candidate of a later term, which is not heard of again, asks
// for a vote. It returns the store of the disk.
func blockByTerm(t *testing.T, stores *sync.Map, lm *member, g *Group) *failingStore {
	t.Helper()
	found, _ := stores.Load(lm.id)
	store, _ := found.(*failingStore)
	store.set(errDiskFull)
	g.instance.Load().transport.Requests() <- raft.RPC{
		Command:  &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: g.Status().Term + 1, LeadershipTransfer: true},
		RespChan: make(chan raft.RPCResponse, 1),
	}
	kit.Eventually(t, "raft's main goroutine waits for space for the term", g.log.WaitsForTerm)
	return store
}

// A leader that learns of a later term and has no space for it sends no heartbeats, so that another replica is elected while it waits.
func TestLeaderWithoutSpaceForTheNextTermIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores sync.Map
		ms, a := threeReplicas(t, withFailingStores(&stores))
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		rest := others(ms, lm)
		store := blockByTerm(t, &stores, lm, g)
		leader(t, rest, 1)
		mustEventually(t, rest, a.next(), send(1, body(2)))
		store.set(nil)
		waitCaughtUp(t, rest, lm)
		if g.log.WaitsForTerm() {
			t.Error("it waits for space although there is some")
		}
		sameEverywhere(t, ms)
	})
}

// A leader whose snapshot a follower refuses because it has a newer one takes another: raft would send the older one until then.
func TestRefusedOlderSnapshotMakesANewOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, func(c *Config) { c.Sizes.Snapshot = 1 << 40 })
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		follower := others(ms, lm)[0]
		kit.OK(t, g.Snapshot(t.Context()))
		meta, older, err := g.snapshots.Open(kit.Must(g.snapshots.List())(t)[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		defer older.Close()
		mustEventually(t, ms, a.next(), send(1, body(2)))
		waitCaughtUp(t, ms, follower)
		kit.OK(t, follower.group(1).Snapshot(t.Context()))
		newest, _ := follower.group(1).snapshots.Newest()
		err = g.instance.Load().transport.InstallSnapshot(raft.ServerID(follower.config(1).Replica), raft.ServerAddress(follower.id), &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(g.cfg.Replica), Addr: []byte(lm.id)},
			SnapshotVersion: raft.SnapshotVersionMax, Term: g.Status().Term, LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Size: meta.Size, Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
		}, new(raft.InstallSnapshotResponse), older)
		if err == nil {
			t.Error("the follower installed a snapshot older than its own")
		}
		kit.Eventually(t, "the leader has a snapshot as new as that of the follower", func() bool {
			now, _ := g.snapshots.Newest()
			return now.Index >= newest.Index
		})
	})
}

// Calls that wait for raft's main goroutine, which the disk blocks, have places: however often they are repeated, few goroutines wait.
func TestCallsOfABlockedRaftHavePlaces(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores sync.Map
		ms, a := threeReplicas(t, withFailingStores(&stores))
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		store, inst := blockByTerm(t, &stores, lm, g), g.instance.Load()
		given, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			_ = inst.verify(given, inst.probing)
		}
		for range 2 * verificationsMax {
			if err := inst.verifyLeader(given); err == nil {
				t.Fatal("a blocked raft has confirmed the leadership")
			}
		}
		if probing, verifying := len(inst.probing), len(inst.verifying); probing > 1 || verifying > verificationsMax || verifying == 0 {
			t.Errorf("%d probes and %d verifications wait, want at most 1 and 1 to %d", probing, verifying, verificationsMax)
		}
		store.set(nil)
		kit.Eventually(t, "all places are free", func() bool { return len(inst.probing)+len(inst.verifying) == 0 })
	})
}
