package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// newGrowingCluster starts a number of initial members; further members are started later.
func newGrowingCluster(t *testing.T, founders, members, partitions int) *testCluster {
	t.Helper()
	c := newBubbleCluster(t, members, partitions)
	for i := range c.configs {
		c.configs[i].Expect = founders
		c.configs[i].Timing.Rejoin = 50 * time.Millisecond // later members are found soon
	}
	for i := range founders {
		c.start(i)
	}
	c.ready()
	return c
}

// startMore starts a member of a running cluster, and waits until it holds the catalog.
func (c *testCluster) startMore(i int) fsm.MemberID {
	c.t.Helper()
	node := c.start(i)
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	defer cancel()
	if err := node.Ready(ctx); err != nil {
		c.t.Fatalf("member %d: %v", i, err)
	}
	return node.self
}

// traffic sends at some members all the time, receives and completes what was sent, and checks that each
// message arrives once.
type traffic struct {
	t       *testing.T
	places  []fsm.EntityRef
	stopped chan struct{} // closed when the senders are to end
	allSent chan struct{} // closed when they have ended
	sending sync.WaitGroup
	taking  sync.WaitGroup
	sent    atomic.Int64
	got     atomic.Int64
	mu      sync.Mutex
	times   map[string]int
	longest time.Duration
}

func (c *testCluster) traffic(nodes []*Node, places ...fsm.EntityRef) *traffic {
	x := &traffic{t: c.t, places: places, stopped: make(chan struct{}), allSent: make(chan struct{}), times: make(map[string]int)}
	for i, node := range nodes {
		for j, at := range places {
			x.sending.Go(func() { x.send(node, at, fmt.Sprintf("%d/%d", i, j)) })
			x.taking.Go(func() { x.receive(node, at) })
		}
	}
	c.t.Cleanup(func() { x.stop() })
	return x
}

// trafficPause is the time between two sends of one sender. Where a partition has one replica, nothing else
// slows the senders down: without the pause they take a whole processor, and other groups cannot elect a
// leader.
const trafficPause = time.Millisecond

func (x *traffic) send(node *Node, at fsm.EntityRef, who string) {
	for n := 0; ; n++ {
		select {
		case <-x.stopped:
			return
		default:
		}
		id := fmt.Sprintf("%s/%d", who, n)
		began := time.Now()
		if code := sendCode(node, at, fsm.Message{ID: id, Payload: []byte(id)}); code != fsm.OK {
			x.t.Errorf("send %s: %v after %v", id, code, time.Since(began))
			return
		}
		x.sent.Add(1)
		x.mu.Lock()
		x.longest = max(x.longest, time.Since(began))
		x.mu.Unlock()
		sleep(x.t.Context(), trafficPause)
	}
}

// receive continues until everything that was sent has arrived.
func (x *traffic) receive(node *Node, at fsm.EntityRef) {
	receiver := node.Router().Receiver(at, false)
	defer receiver.Close()
	for {
		got := lockMessages(receiver, 20, 200*time.Millisecond)
		if got.code != fsm.OK {
			x.t.Errorf("receive from %s: %v", at.Name, got.code)
			return
		}
		settlements := make([]fsm.Settlement, len(got.deliveries))
		for i := range got.deliveries {
			settlements[i] = fsm.Settlement{Lock: got.deliveries[i].Lock, Verb: fsm.Complete}
		}
		if len(settlements) > 0 {
			codes := make(chan []fsm.Code, 1)
			node.Router().Settle(at, settlements, func(c []fsm.Code) { codes <- c })
			for i, code := range <-codes {
				if code != fsm.OK {
					x.t.Errorf("complete %q: %v", got.deliveries[i].Payload, code)
				}
			}
		}
		x.mu.Lock()
		for i := range got.deliveries {
			x.times[string(got.deliveries[i].Payload)]++
		}
		x.mu.Unlock()
		x.got.Add(int64(len(settlements)))
		select {
		case <-x.allSent:
			if len(settlements) == 0 && (x.t.Failed() || x.got.Load() >= x.sent.Load()) {
				return
			}
		default:
		}
	}
}

// stop ends the sending and waits until all messages have arrived; each must have arrived once.
func (x *traffic) stop() {
	x.mu.Lock()
	select {
	case <-x.stopped:
		x.mu.Unlock()
		return
	default:
	}
	close(x.stopped)
	x.mu.Unlock()
	x.sending.Wait()
	close(x.allSent)
	x.taking.Wait()
	if n := int64(len(x.times)); n != x.sent.Load() {
		x.t.Errorf("%d of %d messages have come", n, x.sent.Load())
	}
	for id, n := range x.times {
		if n != 1 {
			x.t.Errorf("%s has come %d times", id, n)
		}
	}
	x.t.Logf("%d messages, the longest send took %v", x.sent.Load(), x.longest)
}

// describe logs how each member sees the partitions.
func (c *testCluster) describe() {
	for i, node := range c.nodes {
		if node == nil || node.partitions.Load() == nil {
			continue
		}
		for _, part := range *node.partitions.Load() {
			status, err := node.router.ReplicaStatus(part.ID)
			c.t.Logf("member %d %s: record %+v, replica %+v, %v", i, shortID(node.self), part, status, err)
		}
	}
}

// settled waits until no partition moves, and returns the placement.
func (c *testCluster) settled() []fsm.Partition {
	c.t.Helper()
	operator, last := c.any().Operator(), ""
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Log("moves:", last)
			c.describe()
		}
	})
	kit.Eventually(c.t, "nothing moves", func() bool {
		moves, err := operator.Moves(c.t.Context())
		last = fmt.Sprintf("%+v, %v", moves, err)
		return err == nil && len(moves) == 0
	})
	var all placement.Record
	if err := retryUntilLed(c.t, func() (err error) { all, err = operator.node.placementFromLeader(c.t.Context(), 0); return err }); err != nil {
		c.t.Fatal(err)
	}
	for _, part := range all.Partitions {
		var voters, wanted []string
		kit.Eventually(c.t, "the voters are those of the catalog", func() bool {
			status, err := leaderStatus(c.t.Context(), operator.node, part.ID)
			if err != nil || len(status.Nonvoters) > 0 {
				return false
			}
			voters, wanted = nil, nil
			for _, v := range status.Voters {
				voters = append(voters, v.Replica)
			}
			for _, r := range part.Replicas {
				wanted = append(wanted, raftgroup.ReplicaID(r.Member, r.Number))
			}
			slices.Sort(voters)
			slices.Sort(wanted)
			return slices.Equal(voters, wanted)
		})
	}
	return all.Partitions
}

// clean waits until the living members have exactly the replicas that the placement gives them.
func (c *testCluster) clean(parts []fsm.Partition) {
	c.t.Helper()
	for i, node := range c.nodes {
		if node == nil {
			continue
		}
		var want []datadir.Replica
		for _, part := range parts {
			for _, r := range part.Replicas {
				if r.Member == node.self {
					want = append(want, datadir.Replica{Partition: part.ID, Number: r.Number})
				}
			}
		}
		kit.Eventually(c.t, fmt.Sprintf("member %d has the folders of what it holds: %v", i, want), func() bool {
			have, err := node.dataDir.Replicas()
			return err == nil && slices.Equal(have, want)
		})
	}
}

func (c *testCluster) move(id fsm.PartitionID, to ...fsm.MemberID) {
	c.t.Helper()
	if err := retryUntilLed(c.t, func() error { return c.any().Operator().Move(c.t.Context(), id, to) }); err != nil {
		c.t.Fatal(err)
	}
}

// isOn returns a function that reports whether a replica is on a member.
func isOn(id fsm.MemberID) func(partition.Voter) bool {
	return func(v partition.Voter) bool { return v.Member == id }
}

// isReplicaRemoved asks the leader of a partition whether a replica of a member is out of its group, until it answers.
func isReplicaRemoved(t *testing.T, node *Node, id fsm.PartitionID, number uint32) (is bool) {
	t.Helper()
	kit.Eventually(t, "the leader answers about a replica", func() bool {
		err := node.confirmRemoved(t.Context(), id, number)
		is = err == nil
		return is || errors.Is(err, fsm.PreconditionFails)
	})
	return is
}
