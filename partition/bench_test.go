package partition

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// BenchmarkPropose measures sends of 1 KiB through three replicas in one process over loopback, by the number
// of outstanding sends. One P per fsync would hide the gain of the shared log, so there are eight.
func BenchmarkPropose(b *testing.B) {
	for _, groups := range []int{1, 16} {
		for _, outstanding := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("groups=%d/outstanding=%d", groups, outstanding), func(b *testing.B) {
				benchmarkPropose(b, groups, outstanding)
			})
		}
	}
}

func benchmarkPropose(b *testing.B, groups, outstanding int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	ms := newMembers(b, 3, func(c *Config) { c.Timing = DefaultTiming() })
	var ids []fsm.PartitionID
	for i := range groups {
		ids = append(ids, fsm.PartitionID(i+1))
	}
	for _, m := range ms {
		m.start(ids...)
	}
	var gs []*Group
	for _, id := range ids {
		_, g := leader(b, ms, id)
		must(b, g, (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		gs = append(gs, g)
	}
	payload := make([]byte, 1024)
	free := make(chan int, outstanding)
	askers := make([]asker, outstanding)
	for i := range outstanding {
		askers[i] = asker{origin: 9, receiver: uint64(i + 1)}
		free <- i
	}
	var slots []*Group
	for i := range outstanding {
		slots = append(slots, gs[i%len(gs)])
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	for range b.N {
		i := <-free
		slots[i].Submit(fsm.AppendCommand(make([]byte, 0, 1100), askers[i].next(), send(1, payload)), func(a Answer) {
			if a.Outcome != Done || a.Result.Code != fsm.OK {
				b.Errorf("outcome %d, %v", a.Outcome, a.Result.Code)
			}
			free <- i
		})
	}
	for range outstanding {
		<-free
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "sends/s")
	var commits, entries uint64
	for _, m := range ms {
		s := m.log.Stats()
		commits += s.Commits
		entries += s.Entries
	}
	b.ReportMetric(float64(b.N)*3/float64(entries), "sends/entry")
	b.ReportMetric(float64(entries)/float64(commits), "entries/commit")
}

// BenchmarkCycle measures send, lock and complete on one group of three replicas.
func BenchmarkCycle(b *testing.B) {
	for _, outstanding := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("outstanding=%d", outstanding), func(b *testing.B) { benchmarkCycle(b, outstanding) })
	}
}

func benchmarkCycle(b *testing.B, outstanding int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	ms := newMembers(b, 3, func(c *Config) { c.Timing = DefaultTiming() })
	for _, m := range ms {
		m.start(1)
	}
	mustEventually(b, ms, (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	_, g := leader(b, ms, 1)
	payload := make([]byte, 1024)
	free := make(chan int, outstanding)
	for i := range outstanding {
		free <- i
	}
	sends, settles, locks := make([]asker, outstanding), make([]asker, outstanding), make([]asker, outstanding)
	for i := range outstanding {
		sends[i] = asker{origin: 9, receiver: uint64(3*i + 1)}
		settles[i] = asker{origin: 9, receiver: uint64(3*i + 2)}
		locks[i] = asker{origin: 9, receiver: uint64(3*i + 3)}
	}
	b.ResetTimer()
	start := time.Now()
	for range b.N {
		i := <-free
		g.Lock(LockRequest{Header: locks[i].next(), Lock: lockOf(1, 1), Until: time.Now().Add(time.Minute), Done: func(a Answer) {
			if len(a.Result.Deliveries) != 1 || len(a.Result.Deliveries[0].Payload) != 1024 {
				b.Errorf("lock: %+v", a)
				free <- i
				return
			}
			c := fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
				{Lock: a.Result.Deliveries[0].Lock, Verb: fsm.Complete},
			}}
			g.Submit(fsm.AppendCommand(nil, settles[i].next(), c), func(a Answer) {
				if a.Outcome != Done || a.Result.Codes[0] != fsm.OK {
					b.Errorf("settle: %+v", a)
				}
				free <- i
			})
		}})
		g.Submit(fsm.AppendCommand(make([]byte, 0, 1100), sends[i].next(), send(1, payload)), func(Answer) {})
	}
	for range outstanding {
		<-free
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "cycles/s")
	var entries uint64
	for _, m := range ms {
		entries += m.log.Stats().Entries
	}
	b.ReportMetric(float64(entries)/3/float64(b.N), "entries/cycle")
}

// BenchmarkReceive measures the time from a send to its delivery to waiting receivers, one message at a time:
// at a queue, and at several subscriptions of a topic.
func BenchmarkReceive(b *testing.B) {
	b.Run("queue", func(b *testing.B) { benchmarkReceive(b, 0) })
	for _, subscriptions := range []int{1, 10, 40} {
		b.Run(fmt.Sprintf("topic/subscriptions=%d", subscriptions), func(b *testing.B) { benchmarkReceive(b, subscriptions) })
	}
}

func benchmarkReceive(b *testing.B, subscriptions int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	ms := newMembers(b, 3, func(c *Config) { c.Timing = DefaultTiming() })
	for _, m := range ms {
		m.start(1)
	}
	a := &asker{origin: 7}
	kind := fsm.QueueEntity
	if subscriptions > 0 {
		kind = fsm.TopicEntity
	}
	mustEventually(b, ms, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings(), Kind: kind})
	for i := range subscriptions {
		mustEventually(b, ms, a.next(), fsm.PutEntity{
			Entity: fsm.EntityID(2 + i), Version: 1, Settings: settings(), Kind: fsm.SubscriptionEntity, Topic: 1,
		})
	}
	_, g := leader(b, ms, 1)
	var readers []*reader
	for i := range max(subscriptions, 1) {
		at := fsm.Address{Entity: fsm.EntityID(1 + min(subscriptions, 1) + i)}
		readers = append(readers, newReader(b, g, at, uint64(i+1)))
	}
	payload := make([]byte, 1024)
	before := g.Status().Applied
	b.ResetTimer()
	for range b.N {
		g.Submit(fsm.AppendCommand(make([]byte, 0, 1100), a.next(), send(1, payload)), func(Answer) {})
		for _, r := range readers {
			r.next()
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(g.Status().Applied-before)/float64(b.N), "entries/message")
}
