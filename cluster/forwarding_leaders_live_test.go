package cluster

import (
	gocmp "cmp"
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestForwardWhileLeadersDie forwards 10,000 messages while the leader of their source fails, then that of
// their destination, each with a batch under way. Each message arrives once.
func TestForwardWhileLeadersDie(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testCluster, int){"killed": (*testCluster).kill, "closed": (*testCluster).stop} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const total = 10_000
				c, v := newForwardingCluster(t, 2), newReadGate(total/4+batchMessagesMax/2)
				for i := range c.configs {
					c.configs[i].Reread = v.of(i)
				}
				c.startAll()
				sink, source := c.make(fsm.QueueEntity, "sink", nil), c.make(fsm.QueueEntity, "source", nil)
				want := c.fillQueue(source, total)
				c.change(source, forwards("sink"))
				endWhileOpening := func(id fsm.PartitionID, more int) int {
					<-v.shut
					dead, ended := c.leader(id), make(chan struct{})
					dying := c.nodes[dead]
					go func() {
						defer close(ended)
						end(c, dead)
					}()
					v.open(more)
					kit.Eventually(t, "a leader closes", func() bool { return !dying.startTask(func(context.Context) {}) })
					v.release(dead, true)
					<-ended
					v.release(dead, false)
					return dead
				}
				dead := endWhileOpening(source.Partition, total/4)
				<-v.shut
				if n := countMessages(t, c.any(), source).Transfer; n < total/4 {
					t.Fatalf("only %d messages are left to cross", n)
				}
				c.start(dead)
				c.ready()
				notify.WakeUp(v.shut)
				endWhileOpening(sink.Partition, 10*total)

				c.counted(source, "all has gone", func(n fsm.Counts) bool { return n == fsm.Counts{} })
				got := map[string]int{}
				for _, m := range c.take(sink, 2*total) {
					got[m.Payload]++
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%d of %d arrived: %s", len(got), total, diff)
				}
			})
		})
	}
}

// TestForwardManyMessages checks that a batch costs one entry in the log of its source and one in that of its
// destination. PEEKLOCK_FORWARD sets how many messages of 1 KiB are forwarded; the test logs how fast.
func TestForwardManyMessages(t *testing.T) { inBubble(t, forwardManyMessages) }

func forwardManyMessages(t *testing.T) {
	total := kit.Must(strconv.Atoi(gocmp.Or(os.Getenv("PEEKLOCK_FORWARD"), "5000")))(t)
	c := newForwardingCluster(t, 2)
	c.startAll()
	sink, source := c.make(fsm.QueueEntity, "sink", nil), c.make(fsm.QueueEntity, "source", nil)
	payload := make([]byte, 1024)
	for sent := 0; sent < total; sent += 250 {
		batch := make([]fsm.Message, min(250, total-sent))
		for i := range batch {
			batch[i].Payload = payload
		}
		mustSend(t, c.nodes[0], source, batch...)
	}
	applied := func() (both uint64) {
		for _, at := range []fsm.EntityRef{source, sink} {
			both += c.nodes[c.leader(at.Partition)].replicas.Local(at.Partition).Status().Applied
		}
		return both
	}
	entries, start := applied(), time.Now()
	c.change(source, forwards("sink"))
	c.counted(sink, "all have come", active(uint64(total)))
	took := time.Since(start)
	c.counted(source, "empty", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	entries = applied() - entries
	batches := uint64(total+batchMessagesMax-1) / batchMessagesMax
	t.Logf("%d messages of 1 KiB in %s: %.0f messages/s, %d entries for %d batches",
		total, took.Round(time.Millisecond), float64(total)/took.Seconds(), entries, batches)
	if most := 2*batches + batches/4 + 20; entries > most { // the change itself, pulses, and a batch that was sent twice
		t.Errorf("%d entries for %d batches", entries, batches)
	}
}

// TestForwardWhileLeadershipsMove transfers the leaderships of both partitions repeatedly while messages are
// forwarded. Each message arrives once.
func TestForwardWhileLeadershipsMove(t *testing.T) {
	kit.Long(t)
	inBubble(t, forwardWhileLeadershipsMove)
}

func forwardWhileLeadershipsMove(t *testing.T) {
	c := newForwardingCluster(t, 2)
	c.startAll()
	const total = 10_000
	sink, source := c.make(fsm.QueueEntity, "sink", nil), c.make(fsm.QueueEntity, "source", nil)
	want := c.fillQueue(source, total)
	c.change(source, forwards("sink"))
	const movesMax = 100 // otherwise they may come faster than anything is done
	moved, left := 0, total
	for i := 0; left > 0 && moved < movesMax; i++ {
		id := []fsm.PartitionID{source.Partition, sink.Partition}[i%2]
		leader := c.leader(id)
		to := c.nodes[(leader+1+i%2)%3]
		if c.nodes[leader].replicas.Group(id).Transfer(t.Context(), to.self) == nil {
			moved++
		}
		left = total - int(countMessages(t, c.any(), sink).Active)
	}
	c.counted(source, "all has gone", func(n fsm.Counts) bool { return n == fsm.Counts{} })
	got := map[string]int{}
	for _, m := range c.take(sink, 2*total) {
		got[m.Payload]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%d of %d arrived: %s", len(got), total, diff)
	}
	if t.Logf("leaderships moved %d times", moved); moved == 0 {
		t.Error("no leadership moved")
	}
}
