package cluster

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestRandomMovesWithFailures moves partitions at random, and pauses, cancels and redirects moves, while
// members die and come back and two members are in use all the time. In the end every partition has its last
// target, every member has exactly its replicas, all replicas are equal, and each message has arrived once.
// PEEKLOCK_MOVES sets the number of events.
func TestRandomMovesWithFailures(t *testing.T) {
	kit.Long(t)
	inBubble(t, randomMovesWithFailures)
}

func randomMovesWithFailures(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("PEEKLOCK_MOVES"), "20"))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	if text := os.Getenv("PEEKLOCK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PEEKLOCK_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	const members, partitions = 5, 2
	c := newGrowingCluster(t, 3, members, partitions)
	ids := []fsm.MemberID{c.nodes[0].self, c.nodes[1].self, c.nodes[2].self, c.startMore(3), c.startMore(4)}
	x := c.traffic(c.nodes[:2], createQueue(t, c.nodes[0], "a"), createQueue(t, c.nodes[0], "b"))
	operator := c.nodes[0].Operator()
	dead := -1
	for range rounds {
		id := fsm.PartitionID(1 + random.IntN(partitions))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		switch random.IntN(8) {
		case 0, 1, 2:
			order := random.Perm(members)[:1+random.IntN(3)]
			to := make([]fsm.MemberID, len(order))
			for i, m := range order {
				to[i] = ids[m]
			}
			err = operator.Move(ctx, id, to)
		case 3:
			err = operator.CancelMove(ctx, id)
		case 4:
			err = operator.PauseMove(ctx, id)
		case 5:
			err = operator.ResumeMove(ctx, id)
		default:
			// Only one member is dead at a time, and never one that alone holds a partition, nor one of the two
			// in use.
			if dead >= 0 {
				c.start(dead)
				dead = -1
				break
			}
			dead = 2 + random.IntN(members-2)
			all, err := operator.node.placementFromLeader(ctx, 0)
			if err != nil || slices.ContainsFunc(all.Partitions, func(p fsm.Partition) bool { return mayHold(&p, ids[dead]) }) {
				dead = -1
				break
			}
			c.kill(dead)
		}
		cancel()
		if err != nil {
			t.Logf("%v", err) // for example, a pause or a cancel of a partition that does not move
		}
		sleep(t.Context(), time.Duration(random.IntN(400))*time.Millisecond)
	}
	if dead >= 0 {
		c.start(dead)
	}
	for id := range fsm.PartitionID(partitions) {
		kit.Eventually(t, "its move is not paused", func() bool { // the catalog may have no leader for a while
			err := operator.ResumeMove(t.Context(), id+1)
			return err == nil || errors.Is(err, fsm.PreconditionFails)
		})
	}
	parts := c.settled()
	c.clean(parts)
	x.stop()
	for _, part := range parts {
		c.equal(part)
	}
}

// mayHold reports whether a partition could come to depend on a member, because its replicas or its target are
// on fewer than three members.
func mayHold(p *fsm.Partition, id fsm.MemberID) bool {
	_, has := placement.FindReplica(p, id)
	return has && (len(p.Replicas) < 3 || p.Target != nil && len(p.Target) < 3)
}

// equal waits until all replicas of a partition have applied the same entries, and compares them.
func (c *testCluster) equal(part fsm.Partition) {
	c.t.Helper()
	kit.Eventually(c.t, "the replicas are equal", func() bool {
		v, err := c.any().Operator().Verify(c.t.Context(), part.ID)
		return err == nil && len(v.Replicas) == len(part.Replicas) && v.Equal
	})
}
