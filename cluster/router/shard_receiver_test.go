package router

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakeclients"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// shardReceiverOf returns a receiver of an entity with a shard in each of two partitions.
func shardReceiverOf(t *testing.T, groups ...*fakegroup.Group) *Receiver {
	t.Helper()
	clients := fakeclients.New(t, groups...)
	go clients.Run(t.Context(), func(fsm.Entity) {})
	at := fsm.EntityRef{Entity: fsm.Entity{ID: 1, Partition: 1}}
	for i, group := range groups {
		group.Lead(true, 1)
		at.Shards = append(at.Shards, fsm.Shard{Entity: fsm.EntityID(i + 1), Partition: fsm.PartitionID(i + 1)})
	}
	return newRouter(&entities.Manager{Clients: clients}).Receiver(at, false)
}

// drainedAfter cancels the Lock that waits and makes one that does not wait from its done function, as a link does that is
// drained. It returns the messages that were locked, and how long the second Lock took.
func drainedAfter(r *Receiver, interrupt func()) (got []fsm.Delivery, took time.Duration) {
	var start time.Time
	drained := make(chan []fsm.Delivery, 1)
	r.Lock(10, 1<<20, time.Minute, func(fsm.Code, []fsm.Delivery) {
		start = time.Now()
		r.Lock(10, 1<<20, 0, func(_ fsm.Code, got []fsm.Delivery) { drained <- got })
	})
	synctest.Wait()
	interrupt()
	r.Cancel()
	got = <-drained
	return got, time.Since(start)
}

// TestDrainOfShardsIsAnsweredAtOnce checks that a Lock that does not wait ends the waits of the Lock before it, asks those
// shards again, and does not wait for a shard without a leader.
func TestDrainOfShardsIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := &fakegroup.Group{}, &fakegroup.Group{}
		r := shardReceiverOf(t, first, second)
		answerDrain := func(group *fakegroup.Group, deliveries ...fsm.Delivery) {
			group.Await(t, 0, 2)
			group.Locks[1].Done(partition.Answer{Outcome: partition.Done, Result: fsm.Result{Deliveries: deliveries}})
		}
		go answerDrain(first)
		go answerDrain(second, fsm.Delivery{Lock: fsm.LockID{Sequence: 7, Epoch: 1}})
		got, took := drainedAfter(r, func() {})
		if len(got) != 1 || took != 0 {
			t.Errorf("drained %d messages after %v, want 1 at once", len(got), took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		first, second := &fakegroup.Group{}, &fakegroup.Group{}
		r := shardReceiverOf(t, first, second)
		go func() {
			first.Await(t, 0, 2)
			first.Locks[1].Done(partition.Answer{Outcome: partition.Done})
		}()
		_, took := drainedAfter(r, func() {
			second.Lead(false, 1)
			second.Locks[0].Done(partition.Answer{Outcome: partition.Unknown})
			synctest.Wait()
		})
		if took > 200*time.Millisecond {
			t.Errorf("drained after %v without the leader of a shard, want at most 200ms", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		first, second := &fakegroup.Group{}, &fakegroup.Group{}
		r := shardReceiverOf(t, first, second)
		go func() {
			first.Await(t, 0, 2)
			first.Locks[1].Done(partition.Answer{Outcome: partition.Done})
		}()
		if _, took := drainedAfter(r, func() {}); took != silentShardGrace {
			t.Errorf("drained after %v with a leader that is silent, want %v", took, silentShardGrace)
		}
	})
}
