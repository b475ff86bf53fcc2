package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// TestClientsNoticeNoMove moves a partition off two of its members, the leader first, to two new ones and back,
// while every member uses it. No client sees an error.
func TestClientsNoticeNoMove(t *testing.T) { inBubble(t, clientsNoticeNoMove) }

func clientsNoticeNoMove(t *testing.T) {
	c := newGrowingCluster(t, 3, 5, 1)
	c.startMore(3)
	c.startMore(4)
	queue := createQueue(t, c.nodes[0], "q")
	c.fillQueue(queue, 5000) // data to copy
	x := c.traffic(c.nodes, createQueue(t, c.nodes[0], "r"))
	leader := c.leader(1)
	stays := (leader + 1) % 3
	c.move(1, c.nodes[3].self, c.nodes[4].self, c.nodes[stays].self)
	parts := c.settled()
	if placement.HoldsReplica(&parts[0], c.nodes[leader].self) || !placement.HoldsReplica(&parts[0], c.nodes[3].self) {
		t.Errorf("lies on %v", parts[0].Replicas)
	}
	c.clean(parts)
	kit.Eventually(t, "the preferred member leads", func() bool { return c.leader(1) == 3 })
	// A query about a replica that is not removed, or was never created, is denied, also at a leader.
	for _, node := range c.nodes {
		if isReplicaRemoved(t, node, 1, 99) {
			t.Error("replica 99 is out")
		}
	}
	if at := slices.IndexFunc(parts[0].Replicas, func(r fsm.Replica) bool { return r.Member == c.nodes[stays].self }); at >= 0 {
		if isReplicaRemoved(t, c.nodes[stays], 1, parts[0].Replicas[at].Number) {
			t.Error("a replica that stays is out")
		}
	}
	// When the partition moves back, the members get new replica numbers.
	numbers := parts[0].Last
	c.move(1, c.nodes[0].self, c.nodes[1].self, c.nodes[2].self)
	parts = c.settled()
	c.clean(parts)
	if parts[0].Last <= numbers {
		t.Errorf("numbers %d after %d", parts[0].Last, numbers)
	}
	x.stop()
	if n := countMessages(t, c.nodes[4], queue).Active; n != 5000 {
		t.Errorf("%d of 5000 messages are left", n)
	}
}

// TestClusterGrowsAndShrinks grows a cluster in use from three members to five and shrinks it to three again. A
// removed member holds nothing, stops, and does not come back.
func TestClusterGrowsAndShrinks(t *testing.T) { inBubble(t, clusterGrowsAndShrinks) }

func clusterGrowsAndShrinks(t *testing.T) {
	c := newGrowingCluster(t, 3, 5, 4)
	operator := c.nodes[0].Operator()
	x := c.traffic(c.nodes[:3], createQueue(t, c.nodes[0], "a"), createQueue(t, c.nodes[0], "b"))
	more := []fsm.MemberID{c.startMore(3), c.startMore(4)}
	var plan []topology.PlannedMove
	if err := retryUntilLed(t, func() (err error) {
		if plan, err = operator.PlanRebalance(t.Context()); err == nil {
			err = operator.Rebalance(t.Context(), plan)
		}
		return err
	}); err != nil || len(plan) == 0 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	parts := c.settled()
	held := placement.ReplicaCounts(parts)
	for _, member := range []fsm.MemberID{c.nodes[0].self, c.nodes[1].self, c.nodes[2].self, more[0], more[1]} {
		if n := held[member]; n < 2 || n > 3 { // 12 replicas on 5 members
			t.Errorf("member %s holds %d replicas", member, n)
		}
	}
	c.clean(parts)
	if err := retryUntilLed(t, func() error { return operator.Rebalance(t.Context(), plan) }); !errors.Is(err, fsm.PreconditionFails) {
		t.Errorf("an old plan: %v", err)
	}
	var again []topology.PlannedMove
	if err := retryUntilLed(t, func() (err error) { again, err = operator.PlanRebalance(t.Context()); return err }); err != nil || len(again) != 0 {
		t.Errorf("a second plan %+v, %v", again, err)
	}
	for _, id := range more {
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		err := retryUntilLed(t, func() error { return operator.RemoveMember(ctx, id) })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := 3; i < 5; i++ {
		select {
		case <-c.nodes[i].Removed():
		case <-time.After(waitMax):
			t.Fatalf("member %d does not learn that it was removed", i)
		}
		if err := c.nodes[i].Ready(t.Context()); !errors.Is(err, datadir.ErrRemoved) {
			t.Errorf("ready: %v", err)
		}
		if have, err := c.nodes[i].dataDir.Replicas(); err != nil || len(have) != 0 {
			t.Errorf("member %d still has %v, %v", i, have, err)
		}
		c.stop(i)
		if _, err := c.open(i); !errors.Is(err, datadir.ErrRemoved) {
			t.Errorf("it comes back: %v", err)
		}
	}
	parts = c.settled()
	c.clean(parts)
	x.stop()
	if err := retryUntilLed(t, func() error { return operator.RemoveMember(t.Context(), more[0]) }); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := retryUntilLed(t, func() error { return operator.SetMember(t.Context(), fsm.Member{ID: more[0]}) }); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("it is taken back: %v", err)
	}
}

// TestRemovedMemberIsEmpty checks that a member that the catalog has already dropped reports its removal only
// when it has removed its replicas.
func TestRemovedMemberIsEmpty(t *testing.T) { inBubble(t, removedMemberIsEmpty) }

func removedMemberIsEmpty(t *testing.T) {
	c := newGrowingCluster(t, 3, 4, 1)
	id := c.startMore(3)
	node := c.nodes[3]
	c.move(1, id, c.nodes[0].self, c.nodes[1].self)
	c.settled()
	node.retirer.Busy <- struct{}{} // simulates a retirement that takes long
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	kit.OK(t, retryUntilLed(t, func() error { return c.nodes[0].Operator().RemoveMember(ctx, id) }))
	kit.Eventually(t, "the others tell it", func() bool {
		node.removal.mu.Lock()
		defer node.removal.mu.Unlock()
		return !node.removal.reported.IsZero()
	})
	select {
	case <-node.Removed():
		have, err := node.dataDir.Replicas()
		t.Errorf("it says so with %v, %v", have, err)
	default:
	}
	<-node.retirer.Busy
	select {
	case <-node.Removed():
	case <-time.After(60 * time.Second):
		t.Fatal("it does not say so at all")
	}
	if have, err := node.dataDir.Replicas(); err != nil || len(have) != 0 {
		t.Errorf("it still has %v, %v", have, err)
	}
}

// TestMemberRemovedWhileDownLearnsIt checks that a member that was removed while it was dead learns it from the
// others and votes nowhere, and that another has its vote in the catalog.
func TestMemberRemovedWhileDownLearnsIt(t *testing.T) {
	kit.Long(t)
	inBubble(t, memberRemovedWhileDownLearnsIt)
}

func memberRemovedWhileDownLearnsIt(t *testing.T) {
	c := newGrowingCluster(t, 3, 4, 2)
	queue := createQueue(t, c.nodes[0], "q")
	dead, fresh := c.nodes[2].self, c.startMore(3)
	c.kill(2)
	operator := c.nodes[0].Operator()
	kit.Eventually(t, "it is missed", func() bool { return !c.nodes[0].isAlive(dead) })
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	if err := retryUntilLed(t, func() error { return operator.ReplaceMember(ctx, dead, dead) }); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("replaced by itself: %v", err)
	}
	kit.OK(t, retryUntilLed(t, func() error { return operator.ReplaceMember(ctx, dead, fresh) }))
	parts := c.settled()
	for _, part := range parts {
		if !placement.HoldsReplica(&part, fresh) || placement.HoldsReplica(&part, dead) {
			t.Errorf("partition %d lies on %v", part.ID, part.Replicas)
		}
	}
	sendMessage(t, c.nodes[3], queue, "x")
	kit.Eventually(t, "the newcomer votes in the catalog", func() bool {
		status, err := leaderStatus(t.Context(), operator.node, fsm.CatalogPartition)
		return err == nil && len(status.Voters) == 3 && slices.ContainsFunc(status.Voters, isOn(fresh))
	})
	node := c.start(2)
	select {
	case <-node.Removed():
	case <-time.After(waitMax):
		t.Fatal("it does not learn that it was removed")
	}
	c.stop(2)
	if _, err := c.open(2); !errors.Is(err, datadir.ErrRemoved) {
		t.Errorf("it comes back: %v", err)
	}
}

// TestMoveSurvivesItsLeader kills the leader that moves a partition; the next one continues from the state of
// the group.
func TestMoveSurvivesItsLeader(t *testing.T) { inBubble(t, moveSurvivesItsLeader) }

func moveSurvivesItsLeader(t *testing.T) {
	c := newGrowingCluster(t, 3, 4, 1)
	c.startMore(3)
	queue := createQueue(t, c.nodes[0], "q")
	c.fillQueue(queue, 5000)
	dead := c.leader(1)
	others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == dead })
	c.move(1, c.nodes[3].self, c.nodes[others[0]].self, c.nodes[others[1]].self)
	node := c.nodes[dead]
	kit.Eventually(t, "the move has begun, or has ended between two looks", func() bool {
		group := node.replicas.Local(1)
		if group == nil {
			return true
		}
		status := group.Status()
		return len(status.Voters)+len(status.Nonvoters) > 3 || status.Removed
	})
	c.kill(dead)
	for {
		all, err := c.any().placementFromLeader(t.Context(), 1)
		if err == nil && all.Partitions[0].Target == nil {
			break
		}
		sleep(t.Context(), 10*time.Millisecond)
		if t.Context().Err() != nil {
			t.Fatal("it does not arrive")
		}
	}
	c.start(dead)
	c.ready()
	parts := c.settled()
	c.clean(parts)
	if n := countMessages(t, c.any(), queue).Active; n != 5000 {
		t.Errorf("%d of 5000 messages are left", n)
	}
}

// TestMoveIsCancelled checks that a move waits while its new member is away, that a move is cancelled while its
// replica is half copied, and that what the member had is removed when it comes back.
func TestMoveIsCancelled(t *testing.T) {
	kit.Long(t)
	inBubble(t, moveIsCancelled)
}

func moveIsCancelled(t *testing.T) {
	c := newGrowingCluster(t, 3, 4, 1)
	fresh := c.startMore(3)
	operator := c.nodes[0].Operator()
	queue := createQueue(t, c.nodes[0], "q")
	c.fillQueue(queue, 1000)
	before := c.settled()[0]
	for what, change := range map[string]func(context.Context, fsm.PartitionID) error{
		"pause": operator.PauseMove, "resume": operator.ResumeMove, "cancel": operator.CancelMove,
	} {
		if err := retryUntilLed(t, func() error { return change(t.Context(), 1) }); !errors.Is(err, fsm.PreconditionFails) {
			t.Errorf("%s what does not move: %v", what, err)
		}
	}
	members := placement.Members(before.Replicas)
	state := func() string {
		moves, err := operator.Moves(t.Context())
		if err != nil || len(moves) != 1 {
			return fmt.Sprint(moves, err)
		}
		return moves[0].State
	}
	// The new member is away from the beginning.
	c.kill(3)
	kit.Eventually(t, "it is missed", func() bool {
		return !c.nodes[0].isAlive(fresh) && !c.nodes[1].isAlive(fresh) && !c.nodes[2].isAlive(fresh)
	})
	c.move(1, fresh, members[1], members[2])
	kit.Eventually(t, "it waits for its member", func() bool { return state() == topology.Waiting })
	kit.OK(t, retryUntilLed(t, func() error { return operator.PauseMove(t.Context(), 1) }))
	kit.Eventually(t, "it is paused", func() bool { return state() == topology.Paused })
	c.startMore(3)
	kit.Eventually(t, "the replica is open", func() bool { return c.nodes[3].replicas.Number(1) != 0 })
	if status := c.nodes[c.leader(1)].replicas.Local(1).Status(); len(status.Voters)+len(status.Nonvoters) != 3 {
		t.Errorf("it goes on: %v and %v", status.Voters, status.Nonvoters)
	}
	kit.OK(t, retryUntilLed(t, func() error { return operator.CancelMove(t.Context(), 1) }))
	parts := c.settled()
	c.clean(parts)
	if !slices.Equal(parts[0].Replicas, before.Replicas) {
		t.Errorf("lies on %v, lay on %v", parts[0].Replicas, before.Replicas)
	}
	// The new replica is half copied: it is a non-voter or a voter, and is removed.
	c.move(1, fresh, members[1], members[2])
	leader := c.nodes[c.leader(1)]
	kit.Eventually(t, "it is added, or all has moved between two looks", func() bool {
		group := leader.replicas.Local(1)
		if group == nil {
			return true
		}
		status := group.Status()
		return slices.ContainsFunc(slices.Concat(status.Voters, status.Nonvoters), isOn(fresh))
	})
	_ = operator.PauseMove(t.Context(), 1) // may be too late
	c.kill(3)
	if err := retryUntilLed(t, func() error { return operator.CancelMove(t.Context(), 1) }); err != nil && !errors.Is(err, fsm.PreconditionFails) {
		t.Fatal(err)
	}
	c.settled()
	c.startMore(3)
	parts = c.settled()
	c.clean(parts)
	if n := countMessages(t, c.any(), queue).Active; n != 1000 {
		t.Errorf("%d of 1000 messages are left", n)
	}
}

// TestDrainMovesLeadershipsAway checks that a drained member leads no partition, gets none, and gets its
// leaderships back after Undrain.
func TestDrainMovesLeadershipsAway(t *testing.T) { inBubble(t, drainMovesLeadershipsAway) }

func drainMovesLeadershipsAway(t *testing.T) {
	c := newBubbleCluster(t, 3, 4)
	c.startAll()
	operator := c.nodes[0].Operator()
	queue := createQueue(t, c.nodes[0], "q")
	x := c.traffic(c.nodes, queue)
	kit.Eventually(t, "the leaders are spread", func() bool {
		for _, part := range c.settled() {
			if c.index(part.Replicas[0].Member) != c.leader(part.ID) {
				return false
			}
		}
		return true
	})
	drained := c.leader(fsm.CatalogPartition)
	id := c.nodes[drained].self
	led := func() map[fsm.PartitionID]uint64 { // the partitions that it leads, and the terms
		terms := make(map[fsm.PartitionID]uint64)
		for p := range fsm.PartitionID(5) {
			if s := c.nodes[drained].replicas.Local(p).Status(); s.IsLeader {
				terms[p] = s.Term
			}
		}
		return terms
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	before := led()
	kit.OK(t, retryUntilLed(t, func() error { return operator.Drain(ctx, id) }))
	for p, term := range led() { // in a later term it was elected after all, and leads only for a moment
		if before[p] == term {
			t.Errorf("it still leads partition %d", p)
		}
	}
	kit.Eventually(t, "it leads no partition", func() bool { return len(led()) == 0 })
	if err := retryUntilLed(t, func() error { return operator.TransferLeader(ctx, 1, id) }); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("transfer to a drained member: %v", err)
	}
	kit.OK(t, retryUntilLed(t, func() error { return operator.Undrain(ctx, id) }))
	kit.Eventually(t, "it leads again", func() bool {
		for p := fsm.PartitionID(1); p < 5; p++ {
			if c.nodes[drained].replicas.Local(p).Status().IsLeader {
				return true
			}
		}
		return false
	})
	to := (c.leader(1) + 1) % 3
	if err := retryUntilLed(t, func() error { return operator.TransferLeader(ctx, 1, c.nodes[to].self) }); err != nil {
		t.Error(err)
	}
	if err := retryUntilLed(t, func() error { return operator.TransferLeader(ctx, 1, "NOBODY") }); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("transfer to nobody: %v", err)
	}
	x.stop()
}

// TestGrowAddsPartitions checks that new partitions are formed and used, and that old ones stay where they are.
func TestGrowAddsPartitions(t *testing.T) {
	kit.Long(t)
	inBubble(t, growAddsPartitions)
}

func growAddsPartitions(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	before := createQueue(t, c.nodes[0], "before")
	n, err := c.nodes[1].Operator().Grow(t.Context(), 2)
	if err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	var after []fsm.EntityRef
	kit.Eventually(t, "the new partitions are used", func() bool {
		at := createQueue(t, c.nodes[2], fmt.Sprintf("q%d", len(after)))
		after = append(after, at)
		return at.Partition == 3
	})
	for _, at := range append(after, before) {
		sendMessage(t, c.nodes[0], at, "x")
	}
	c.ready()
	c.clean(c.settled())
	if _, err := c.nodes[0].Operator().Grow(t.Context(), move.PartitionsMax); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("too many: %v", err)
	}
}

// TestZoneAndWeightAreRecordedAtTheStart checks that zone and weight are recorded at the start and that every member sees them.
func TestZoneAndWeightAreRecordedAtTheStart(t *testing.T) {
	kit.Long(t)
	inBubble(t, zoneAndWeightAreRecordedAtTheStart)
}

func zoneAndWeightAreRecordedAtTheStart(t *testing.T) {
	c := newBubbleCluster(t, 2, 1)
	c.configs[0].Zone, c.configs[1].Zone, c.configs[1].Weight = "a", "b", 30
	c.startAll()
	for i, want := range []fsm.Member{
		{ID: c.nodes[0].self, Name: "m0", Zone: "a"}, {ID: c.nodes[1].self, Name: "m1", Zone: "b", Weight: 30},
	} {
		for _, node := range c.nodes {
			kit.Eventually(t, fmt.Sprintf("member %d is known", i), func() bool { return node.memberRecord(want.ID) == want })
		}
	}
	var list []fsm.Member
	if err := retryUntilLed(t, func() (err error) { list, err = c.nodes[0].Operator().Members(t.Context()); return err }); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestUnjoinedMembersGetNoReplicas checks that a process that gossip lists and that the cluster does not add,
// here because it is not trusted, gets no replica by a plan, a growth or the removal of a member: a move to it
// would wait forever.
func TestUnjoinedMembersGetNoReplicas(t *testing.T) { inBubble(t, unjoinedMembersGetNoReplicas) }

func unjoinedMembersGetNoReplicas(t *testing.T) {
	c := newFileCluster(t, 3, 4)
	c.startAll()
	at := c.addUntrusted()
	c.configs[at].PeerTLS = kit.NewAuthority(t).MemberTLSConfig(t)
	unknown := c.start(at).self
	kit.Eventually(t, "gossip shows it", func() bool { return c.nodes[0].isAlive(unknown) })
	operator := c.nodes[0].Operator()
	var plan []topology.PlannedMove
	if err := retryUntilLed(t, func() (err error) { plan, err = operator.PlanRebalance(t.Context()); return err }); err != nil || len(plan) != 0 {
		t.Errorf("plan %+v, %v", plan, err)
	}
	kit.Must(operator.Grow(t.Context(), 4))(t)
	var all placement.Record
	kit.OK(t, retryUntilLed(t, func() (err error) {
		all, err = operator.node.placementFromLeader(t.Context(), fsm.CatalogPartition)
		return err
	}))
	for i := range all.Partitions {
		if placement.HoldsReplica(&all.Partitions[i], unknown) {
			t.Errorf("partition %d lies on %v", all.Partitions[i].ID, all.Partitions[i].Replicas)
		}
	}
	for _, s := range operator.Candidates(all, c.nodes[2].self) {
		if s.ID == unknown {
			t.Errorf("it may take the place of another: %+v", s)
		}
	}
}
