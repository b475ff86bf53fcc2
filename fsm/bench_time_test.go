package fsm_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/test/kit"
)

// set replaces the settings of the queue.
func (b *bench) set(change func(*fsm.EntitySettings)) {
	s := fsm.DefaultSettings()
	s.MaxBytes = 80 << 30
	change(&s)
	b.apply(fsm.PutEntity{Entity: 1, Version: b.header.Serial + 2, Settings: s})
}

// newWindowBench has a queue that detects duplicates, or not.
func newWindowBench(detects bool) *bench {
	b := &bench{q: queue.New(&discardBodies{}), header: fsm.Header{Incarnation: 1}}
	s := fsm.DefaultSettings()
	s.RequiresDuplicateDetection, s.DuplicateWindow = detects, 20_000
	b.apply(fsm.PutEntity{Entity: 1, Version: 1, Settings: s})
	return b
}

// BenchmarkSendWithWindow measures one message of a send of 64 and a lock and settlement
// of them, over a window of 1,280,000 ids that as many leave as enter, and without one.
func BenchmarkSendWithWindow(b *testing.B) {
	for name, detects := range map[string]bool{"none": false, "million": true} {
		b.Run(name, func(b *testing.B) {
			m := newWindowBench(detects)
			send := sendOf(batch)
			next := uint64(0)
			fresh := func() {
				for i := range send.Messages {
					next++
					send.Messages[i].ID = string(binary.BigEndian.AppendUint64([]byte("order-"), next))
				}
			}
			for range 20_000 { // a millisecond each: env.Now rises with every command
				fresh()
				m.apply(send)
				m.env.Now -= 2
				m.complete(m.lock())
			}
			b.ReportAllocs()
			b.ResetTimer()
			worst := time.Duration(0)
			for i := 0; i < b.N; i += batch {
				b.StopTimer()
				fresh()
				b.StartTimer()
				start := time.Now()
				m.apply(send)
				worst = max(worst, time.Since(start))
				m.env.Now -= 2
				m.complete(m.lock())
			}
			b.ReportMetric(float64(worst.Microseconds()), "worst-us/send")
		})
	}
}

// BenchmarkStorm measures the pulses over 200,000 messages that are due: what one of them
// costs, on average and at worst. All are due in the same millisecond, and dropped,
// dead-lettered or activated; or each in a millisecond of its own, so that every message
// is in another chunk than the one before.
func BenchmarkStorm(b *testing.B) {
	messages := kit.Size(200_000)
	storms := map[string]func(*fsm.EntitySettings) func(n int, m *fsm.Message){
		"dropped": func(s *fsm.EntitySettings) func(int, *fsm.Message) {
			s.DefaultTimeToLive = 1_000_000
			return func(int, *fsm.Message) {}
		},
		"buried": func(s *fsm.EntitySettings) func(int, *fsm.Message) {
			s.DefaultTimeToLive, s.DeadLetterOnExpiry = 1_000_000, true
			return func(int, *fsm.Message) {}
		},
		"scheduled": func(*fsm.EntitySettings) func(int, *fsm.Message) {
			return func(_ int, m *fsm.Message) { m.EnqueueAt = 1_000_000 }
		},
		"alternating": func(*fsm.EntitySettings) func(int, *fsm.Message) {
			return func(n int, m *fsm.Message) { m.TimeToLive = fsm.Millis(500_000 + n%1024*200 + n/1024) }
		},
	}
	pulse := fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{})
	for name, prepare := range storms {
		b.Run(name, func(b *testing.B) {
			var total, worst time.Duration
			pulses := 0
			for b.Loop() {
				b.StopTimer()
				m := newBench()
				send := sendOf(batch)
				var each func(int, *fsm.Message)
				m.set(func(s *fsm.EntitySettings) { each = prepare(s) })
				for n := 0; n < messages; n += batch {
					for i := range send.Messages {
						each(n+i, &send.Messages[i])
					}
					m.env.Now = 0
					m.apply(send)
				}
				m.env.Now = 2_000_000
				b.StartTimer()
				for {
					at, ok := firstDeadline(m.q)
					if !ok || at > m.env.Now {
						break
					}
					start := time.Now()
					m.q.Apply(oneTime(m.env), pulse)
					took := time.Since(start)
					total, worst, pulses = total+took, max(worst, took), pulses+1
				}
			}
			b.ReportMetric(float64(total.Microseconds())/float64(pulses), "us/pulse")
			b.ReportMetric(float64(worst.Microseconds()), "worst-us/pulse")
		})
	}
}

// BenchmarkApplyCycleLife is BenchmarkApplyCycle with messages that expire.
func BenchmarkApplyCycleLife(b *testing.B) {
	b.ReportAllocs()
	m := newBench()
	m.set(func(s *fsm.EntitySettings) { s.DefaultTimeToLive = 14 * 24 * 3600 * 1000 })
	m.fill(100_000)
	send := sendOf(batch)
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		m.apply(send)
		m.complete(m.lock())
	}
}

// TestBacklogWithTimesToLiveCostsBoundedMemory: a message that expires costs at most 100 bytes of index
// memory, record, timer and all overhead, also when no two expire in order.
func TestBacklogWithTimesToLiveCostsBoundedMemory(t *testing.T) { // not parallel: it measures the heap
	const messages = 1_000_000
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	for name, life := range map[string]func(i int) fsm.Millis{
		"one after the other": func(int) fsm.Millis { return 86_400_000 },
		"backwards":           func(i int) fsm.Millis { return fsm.Millis(2*messages - i) },
	} {
		m := newBench()
		before := heap()
		send := sendOf(batch)
		for i := 0; i < messages; i += batch {
			for j := range send.Messages {
				send.Messages[j].TimeToLive = life(i + j)
			}
			m.apply(send)
		}
		perMessage := float64(heap()-before) / messages
		t.Logf("%s: %.1f bytes a message", name, perMessage)
		if perMessage > 100 {
			t.Errorf("%s: a message takes %.1f bytes of index, more than 100", name, perMessage)
		}
		runtime.KeepAlive(m)
	}
}
