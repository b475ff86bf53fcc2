package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/reconcile"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// shortIdle deletes an entity after five minutes.
func shortIdle(s *fsm.EntitySettings) { s.AutoDeleteOnIdle = 5 * 60_000 }

// shardsGone reports whether no member knows a partitioned entity or one of its shards.
func (c *testCluster) shardsGone(at fsm.EntityRef) bool {
	for shard := range at.Shards {
		part := shards.Ref(at, shard)
		if !c.gone(part) {
			return false
		}
	}
	return true
}

// fences returns the number of fenced shards of an entity, at this member.
func fences(node *Node, at fsm.EntityRef) (n int) {
	for _, shard := range at.Shards {
		node.replicas.Local(shard.Partition).View(func(m partition.Machine) {
			for _, f := range raftgroup.Queues(m).FencedShards() {
				if f.Entity == shard.Entity {
					n++
				}
			}
		})
	}
	return n
}

// TestIdlePartitionedEntitiesDeleteThemselves: a partitioned queue, topic or subscription is deleted when all of its shards are
// idle, and only then: a message in one shard, or a receiver that waits, keeps all of them.
func TestIdlePartitionedEntitiesDeleteThemselves(t *testing.T) {
	inBubble(t, idlePartitionedEntitiesDeleteThemselves)
}

func idlePartitionedEntitiesDeleteThemselves(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 4)
	c.startAll()
	c.awaitLevel(fsm.FormatLevel)
	idle, used := c.make(fsm.QueueEntity, "idle", both(partitioned, shortIdle)), c.make(fsm.QueueEntity, "used", both(partitioned, shortIdle))
	waited, kept := c.make(fsm.QueueEntity, "waited", both(partitioned, shortIdle)), c.make(fsm.QueueEntity, "kept", partitioned)
	topic, silent := c.make(fsm.TopicEntity, "topic", partitioned), c.make(fsm.TopicEntity, "silent", both(partitioned, shortIdle))
	read, lost := c.make(fsm.SubscriptionEntity, "topic/Subscriptions/read", shortIdle), c.make(fsm.SubscriptionEntity, "topic/Subscriptions/lost", shortIdle)
	along := c.make(fsm.SubscriptionEntity, "silent/Subscriptions/along", nil)
	node := c.nodes[1]
	mustSend(t, node, idle, fsm.Message{Payload: []byte("lost with the queue")})
	receiver := node.Router().Receiver(waited, false)
	defer receiver.Close()
	waits := make(chan lockedMessages, 1)
	receiver.Lock(1, 1000, 10*time.Minute, func(code fsm.Code, d []fsm.Delivery) { waits <- lockedMessages{code, d} })
	for range 2 {
		c.pass(clock, 3*time.Minute)
		mustSend(t, node, used, fsm.Message{Payload: []byte("to one shard"), PartitionKey: "k"})
		mustSend(t, node, topic, fsm.Message{Payload: []byte("no use of a subscription")})
		kit.Must(node.Router().Peek(t.Context(), read, 1, 100, 1<<20))(t)
		kit.Eventually(t, "the receivers are reported", func() bool {
			return clock.now().Sub(node.router.LastActivity(waited.ID)) < time.Minute && clock.now().Sub(node.router.LastActivity(read.ID)) < time.Minute
		})
		for _, shard := range idle.Shards {
			settled(t, node, shard.Partition)
		}
	}
	kit.Eventually(t, "the idle ones are gone", func() bool {
		return c.shardsGone(idle) && c.shardsGone(silent) && c.shardsGone(lost) && c.shardsGone(along)
	})
	for _, name := range []string{"used", "waited", "kept", "topic", "topic/Subscriptions/read"} {
		resolve(t, node, name)
	}
	if counts := countMessages(t, node, used); counts.Active != 2 {
		t.Errorf("the used queue holds %+v", counts)
	}
	if counts := countMessages(t, node, read); counts.Active != 2 {
		t.Errorf("the subscription holds %+v", counts)
	}
	if code := sendCode(node, idle, fsm.Message{Payload: []byte("late")}); code != fsm.EntityNotFound {
		t.Errorf("send to the deleted queue: %v", code)
	}
	mustSend(t, node, waited, fsm.Message{Payload: []byte("at last")})
	if got := await(t, waits); len(got.deliveries) != 1 {
		t.Errorf("the waiting receiver got %+v", got)
	}
	again := c.make(fsm.QueueEntity, "idle", both(partitioned, shortIdle))
	if counts := countMessages(t, node, again); again.ID == idle.ID || counts != (fsm.Counts{}) {
		t.Errorf("the new queue %d holds %+v", again.ID, counts)
	}
	for _, at := range []fsm.EntityRef{used, waited, kept, topic, read} {
		if n := fences(node, at); n != 0 {
			t.Errorf("%s: %d shards are fenced", at.Name, n)
		}
	}
}

// TestFencesWithoutUseAreLifted: a member fences shards and fails before it deletes the queue. The leaders of their partitions
// lift the fences; clients that were refused send again, and the receiver that waited gets the messages.
func TestFencesWithoutUseAreLifted(t *testing.T) { inBubble(t, fencesWithoutUseAreLifted) }

func fencesWithoutUseAreLifted(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 3)
	c.startAll()
	c.awaitLevel(fsm.FormatLevel)
	at := c.make(fsm.QueueEntity, "orders", both(partitioned, shortIdle))
	isIdle := func(shard fsm.Shard) (idle bool) {
		c.nodes[c.leader(shard.Partition)].replicas.Local(shard.Partition).View(func(m partition.Machine) { idle, _ = raftgroup.Queues(m).IsIdle(shard.Entity) })
		return idle
	}
	var stored uint64
	for !isIdle(at.Shards[0]) || !isIdle(at.Shards[1]) { // an election takes serving time from its partition
		c.pass(clock, 4*time.Minute)
		mustSend(t, c.nodes[0], shards.Ref(at, 2), fsm.Message{Payload: []byte("so no member deletes the queue by itself")})
		stored++
	}
	router := c.nodes[0].router
	fence := func(shard fsm.Shard, round uint64) uint64 {
		result := kit.Must(router.Command(t.Context(), shard.Partition, fsm.FenceIdle{Entity: shard.Entity, Round: round, Step: fsm.FenceSet}))(t)
		return result.Serial
	}
	begun := time.Now()
	round := fence(at.Shards[0], 0)
	fence(at.Shards[1], round)
	for shard := range 2 {
		switch code := sendCode(c.nodes[1], shards.Ref(at, shard), fsm.Message{Payload: []byte("x")}); {
		case code == fsm.OK && time.Since(begun) > reconcile.FenceMax:
			t.Log("the machine was too slow to send before the fences were lifted")
			stored++
		case code != fsm.ServerBusy:
			t.Errorf("send to shard %d, which is fenced: %v", shard, code)
		}
	}
	waits := make(chan lockedMessages, 1)
	receiver := c.nodes[2].Router().Receiver(at, false)
	defer receiver.Close()
	receiver.Lock(10, 1000, waitMax, func(code fsm.Code, d []fsm.Delivery) { waits <- lockedMessages{code, d} })
	c.kill(c.leader(at.Shards[0].Partition))
	node := c.any()
	for shard := range at.Shards {
		kit.Eventually(t, "the shard accepts messages", func() bool {
			code := sendCode(node, shards.Ref(at, shard), fsm.Message{Payload: []byte("late")})
			if code != fsm.OK && code != fsm.ServerBusy {
				t.Fatalf("send to shard %d: %v", shard, code)
			}
			return code == fsm.OK
		})
		stored++
	}
	kit.Eventually(t, "the fences are lifted", func() bool { return fences(node, at) == 0 })
	if counts := countMessages(t, node, at); counts.Active != stored {
		t.Errorf("the queue holds %+v", counts)
	}
}

// TestNextLeaderCompletesTheDeletionOfIdleShards: the leader of the first shard deletes it and fails. Its successor finds the
// tombstone and has the others dropped.
func TestNextLeaderCompletesTheDeletionOfIdleShards(t *testing.T) {
	inBubble(t, nextLeaderCompletesTheDeletionOfIdleShards)
}

func nextLeaderCompletesTheDeletionOfIdleShards(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 3)
	c.startAll()
	c.awaitLevel(fsm.FormatLevel)
	at := c.make(fsm.QueueEntity, "orders", both(partitioned, shortIdle))
	leader := c.leader(at.Shards[0].Partition)
	c.nodes[leader].partitions.Store(nil) // the leader then no longer reconciles its partitions, until it loads the catalog again
	c.pass(clock, 6*time.Minute)
	survivor := c.nodes[(leader+1)%3]
	kit.Eventually(t, "the first shard is deleted", func() bool {
		var deleted bool
		survivor.replicas.Local(at.Partition).View(func(m partition.Machine) { deleted = len(raftgroup.Queues(m).Tombstones()) > 0 })
		return deleted || c.shardsGone(at) // it has completed the deletion
	})
	c.kill(leader)
	kit.Eventually(t, "the next leader completes the deletion", func() bool { return c.shardsGone(at) })
}

// TestSendsRaceWithTheDeletionOfIdleShards: queues become idle while senders at all members begin to use them again. Each queue
// is deleted, and nothing that was sent to it was accepted; or it lives, and holds what was accepted.
func TestSendsRaceWithTheDeletionOfIdleShards(t *testing.T) {
	kit.Long(t)
	inBubble(t, sendsRaceWithTheDeletionOfIdleShards)
}

func sendsRaceWithTheDeletionOfIdleShards(t *testing.T) {
	c, clock := newTimedCluster(t, 3, 4)
	c.startAll()
	c.awaitLevel(fsm.FormatLevel)
	var deleted, lived int
	for round := range 8 {
		var queues []fsm.EntityRef
		for i := range 4 {
			queues = append(queues, c.make(fsm.QueueEntity, fmt.Sprintf("q%d-%d", round, i), both(partitioned, shortIdle)))
		}
		accepted := make([][]string, len(queues))
		var mu sync.Mutex
		var senders sync.WaitGroup
		clock.ahead.Add(int64(5*time.Minute + time.Second))
		for i := range queues {
			begin := rand.IntN(300)
			for m, node := range c.nodes {
				senders.Go(func() {
					pause := time.Duration(begin+rand.IntN(30)) * time.Millisecond
					ctx, cancel := context.WithTimeout(t.Context(), pause)
					<-ctx.Done()
					cancel()
					for n := 0; n < 5; n++ {
						payload := fmt.Sprint(m, "-", n)
						code := sendCode(node, queues[i], fsm.Message{Payload: []byte(payload)})
						for code == fsm.ServerBusy {
							code = sendCode(node, queues[i], fsm.Message{Payload: []byte(payload)})
						}
						if code == fsm.EntityNotFound {
							return
						}
						if code != fsm.OK {
							t.Errorf("send: %v", code)
						}
						mu.Lock()
						accepted[i] = append(accepted[i], payload)
						mu.Unlock()
					}
				})
			}
		}
		c.touchPartitions()
		senders.Wait()
		for i, at := range queues {
			if len(accepted[i]) == 0 {
				kit.Eventually(t, "the idle queue is gone", func() bool { return c.shardsGone(at) })
				deleted++
				continue
			}
			lived++
			var got []string
			receiver := c.nodes[0].Router().Receiver(at, true)
			kit.Eventually(t, "everything has been received", func() bool {
				some := lockMessages(receiver, 100, 0)
				if some.code != fsm.OK {
					t.Fatalf("%d messages were accepted, and %s is lost: %v", len(accepted[i]), at.Name, some.code)
				}
				got = append(got, payloads(some.deliveries)...)
				return len(got) >= len(accepted[i])
			})
			receiver.Close()
			slices.Sort(got)
			slices.Sort(accepted[i])
			if diff := cmp.Diff(accepted[i], got); diff != "" {
				t.Errorf("%s: %s", at.Name, diff)
			}
		}
	}
	t.Logf("%d queues were deleted, %d lived", deleted, lived)
}
