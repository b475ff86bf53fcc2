package fsm_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// batch is the number of messages of one command in the benchmarks.
const batch = 64

// bench drives one state machine with one queue through encoded commands.
type bench struct {
	q      *queue.Machine
	env    fsm.Env
	header fsm.Header
	buf    []byte
}

func newBench() *bench {
	b := &bench{q: queue.New(&discardBodies{}), header: fsm.Header{Incarnation: 1}}
	s := fsm.DefaultSettings()
	s.MaxBytes = 80 << 30
	b.apply(fsm.PutEntity{Entity: 1, Version: 1, Settings: s})
	return b
}

func (b *bench) apply(c fsm.Command) fsm.Result {
	b.header.Serial++
	b.header.Low = b.header.Serial
	b.buf = fsm.AppendCommand(b.buf[:0], b.header, c)
	return b.run()
}

func (b *bench) run() fsm.Result {
	b.env.Index++
	b.env.Now++
	return b.q.Apply(oneTime(b.env), b.buf)
}

func sendOf(n int) fsm.SendMessages {
	c := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, n)}
	for i := range c.Messages {
		c.Messages[i] = fsm.Message{ID: "0123456789abcdef", Payload: make([]byte, 1024)}
	}
	return c
}

func (b *bench) fill(messages int) {
	send := sendOf(batch)
	for range messages / batch {
		b.apply(send)
	}
}

func (b *bench) lock() []fsm.Delivery {
	return b.apply(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: batch, MaxBytes: 1 << 30}).Deliveries
}

func (b *bench) complete(deliveries []fsm.Delivery) fsm.Result {
	c := fsm.SettleMessages{Address: fsm.Address{Entity: 1}}
	for _, d := range deliveries {
		c.Settlements = append(c.Settlements, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
	}
	return b.apply(c)
}

// BenchmarkApplySend measures one message of a send of 64, at a growing depth.
func BenchmarkApplySend(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	send := sendOf(batch)
	for i := 0; i < b.N; i += batch {
		m.apply(send)
	}
}

// BenchmarkApplySendManyQueues measures one send of one message, to each of many queues: the state of 10,000 queues does
// not fit into the caches of a processor.
func BenchmarkApplySendManyQueues(b *testing.B) {
	const stride = 7919 // a prime: the processor cannot guess which queue is next
	for _, queues := range []fsm.EntityID{1, 100, 10_000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			b.ReportAllocs()
			m := newBench()
			for id := range queues {
				m.apply(fsm.PutEntity{Entity: id + 1, Version: 1, Settings: fsm.DefaultSettings()})
			}
			sends := make([][]byte, queues)
			send := sendOf(1)
			send.Messages[0].Payload = make([]byte, 16)
			for i := range sends {
				send.Entity = fsm.EntityID(i) + 1
				sends[i] = fsm.AppendCommand(nil, fsm.Header{}, send)
			}
			for i := 0; b.Loop(); i++ {
				m.buf = sends[i*stride%len(sends)]
				m.run()
			}
		})
	}
}

// BenchmarkApplyLock measures one message of a lock of 64 from a backlog.
func BenchmarkApplyLock(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	m.fill(b.N + batch)
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		m.lock()
	}
}

// BenchmarkApplyComplete measures one message of a settlement of 64.
func BenchmarkApplyComplete(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	m.fill(b.N + batch)
	var locked [][]fsm.Delivery
	for i := 0; i < b.N; i += batch {
		locked = append(locked, m.lock())
	}
	b.ResetTimer()
	for _, deliveries := range locked {
		m.complete(deliveries)
	}
}

// BenchmarkApplyCycle measures send, lock and complete of one message, in commands of
// 64, over a backlog of 100,000.
func BenchmarkApplyCycle(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	m.fill(100_000)
	send := sendOf(batch)
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		m.apply(send)
		m.complete(m.lock())
	}
}

// BenchmarkApplyCycleSingle is the cycle in commands of one message over an empty
// queue: what a client with a window of one costs.
func BenchmarkApplyCycleSingle(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	send := sendOf(1)
	for b.Loop() {
		m.apply(send)
		m.complete(m.lock())
	}
}

// BenchmarkImageMillion measures how long taking an image of a million messages blocks the state
// machine, and how long writing it takes concurrently.
func BenchmarkImageMillion(b *testing.B) {
	m := newBench()
	m.fill(kit.Size(1_000_000))
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			m.q.Image()
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			n, _ := m.q.Image().WriteTo(io.Discard)
			b.SetBytes(n)
		}
	})
}

// TestBacklogCostsBoundedMemory: a backlog of a million messages costs at most 64 bytes of index
// memory each, and a drained one nearly nothing.
func TestBacklogCostsBoundedMemory(t *testing.T) {
	const messages = 1_000_000
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	m := newBench()
	before := heap()
	m.fill(messages)
	perMessage := float64(heap()-before) / messages
	t.Logf("%.1f bytes a message", perMessage)
	if perMessage > 64 {
		t.Errorf("a message takes %.1f bytes of index, more than 64", perMessage)
	}
	for m.q.Messages() > 0 {
		m.complete(m.lock())
	}
	if left := int64(heap()) - int64(before); left > 1<<20 {
		t.Errorf("an emptied queue still holds %d bytes", left)
	}
	runtime.KeepAlive(m)
}

// TestImageOfManyQueues: an image copies about a hundred bytes a queue and nothing per
// message or receiver answer, so that 10,000 queues freeze without a stall.
func TestImageOfManyQueues(t *testing.T) { // not parallel: it counts allocations
	m := newBench()
	send := sendOf(2)
	for id := range fsm.EntityID(10_000) {
		m.apply(fsm.PutEntity{Entity: id + 1, Version: 1, Settings: fsm.DefaultSettings()})
		send.Entity = id + 1
		m.apply(send)
	}
	if n := testing.AllocsPerRun(5, func() { m.q.Image() }); n > 10 {
		t.Errorf("an image of 10,000 queues takes %v allocations", n)
	}
}

// BenchmarkImageManyQueues measures how long taking an image of 10,000 queues blocks the state
// machine.
func BenchmarkImageManyQueues(b *testing.B) {
	m := newBench()
	for id := range fsm.EntityID(10_000) {
		m.apply(fsm.PutEntity{Entity: id + 1, Version: 1, Settings: fsm.DefaultSettings()})
	}
	for b.Loop() {
		m.q.Image()
	}
}

// BenchmarkRestoreMillion measures reading back an image of a million messages.
func BenchmarkRestoreMillion(b *testing.B) {
	m := newBench()
	m.fill(kit.Size(1_000_000))
	var image bytes.Buffer
	if _, err := m.q.Image().WriteTo(&image); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(image.Len()))
	for b.Loop() {
		if err := m.q.Restore(bytes.NewReader(image.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplyAfterImage is the cycle over a backlog with an image every 1,000 batches: the cost
// of copy on write.
func BenchmarkApplyAfterImage(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	m.fill(kit.Size(1_000_000))
	send := sendOf(batch)
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		if i%(1000*batch) == 0 {
			m.q.Image()
		}
		m.apply(send)
		m.complete(m.lock())
	}
}
