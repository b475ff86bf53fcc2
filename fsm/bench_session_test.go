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

// sessionsOfTest is how many sessions the test of their memory makes, sessionsOfBench those of
// the benchmarks.
const (
	sessionsOfTest  = 200_000
	sessionsOfBench = 1_000_000
)

// newSessionBench is a state machine with entity 1, which requires sessions.
func newSessionBench() *bench {
	b := &bench{q: queue.New(&discardBodies{}), header: fsm.Header{Incarnation: 1}}
	s := fsm.DefaultSettings()
	s.MaxBytes, s.LockDuration, s.RequiresSession = 80<<30, 300_000, true
	b.apply(fsm.PutEntity{Entity: 1, Version: 1, Settings: s})
	return b
}

// sessionName has as many characters as a GUID.
func sessionName(i int) string { return fmt.Sprintf("%036d", i) }

// accept locks a session by name.
func (b *bench) accept(i int) fsm.SessionLock {
	return b.apply(fsm.AcceptSession{Entity: 1, Named: true, ID: sessionName(i)}).Session
}

// idle adds unlocked sessions, each with a state of 16 bytes.
func (b *bench) idle(n int) {
	state := make([]byte, 16)
	for i := range n {
		held := b.accept(i)
		b.apply(fsm.SetSessionState{Entity: 1, Lock: held, State: state})
		b.apply(fsm.ReleaseSession{Entity: 1, Lock: held})
	}
}

// spread sends so many messages to each of so many sessions, in turn.
func (b *bench) spread(sessions, each int) {
	send := sendOf(batch)
	for i := 0; i < sessions*each; i += batch {
		for j := range send.Messages {
			send.Messages[j].Session, send.Messages[j].HasSession = sessionName((i+j)%sessions), true
		}
		b.apply(send)
	}
}

// TestSessionsCostBoundedMemory measures the memory for sessions: an idle one with a small state, a locked one,
// one with a message, and a message among many of its session.
func TestSessionsCostBoundedMemory(t *testing.T) { // not parallel: it measures the heap
	kit.Long(t)
	for _, c := range []struct {
		name  string
		make  func(*bench)
		units float64
		most  float64 // bytes of each
	}{
		{"idle session with a state", func(b *bench) { b.idle(sessionsOfTest) }, sessionsOfTest, 448},
		{"held session", func(b *bench) {
			for i := range sessionsOfTest {
				b.accept(i)
			}
		}, sessionsOfTest, 512},
		{"session with one message", func(b *bench) { b.spread(sessionsOfTest, 1) }, sessionsOfTest, 576},
		{"message among 1000 of a session", func(b *bench) { b.spread(sessionsOfTest/1000, 1000) }, sessionsOfTest, 112},
	} {
		m := newSessionBench()
		before := heapBytes()
		c.make(m)
		each := float64(heapBytes()-before) / c.units
		t.Logf("%s: %.1f bytes", c.name, each)
		if each > c.most {
			t.Errorf("%s takes %.1f bytes, more than %.0f", c.name, each, c.most)
		}
		runtime.KeepAlive(m)
	}
}

func heapBytes() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkImageMillionSessions measures how long an image of a million idle sessions blocks the
// state machine, how long it takes to write concurrently, and to read.
func BenchmarkImageMillionSessions(b *testing.B) {
	m := newSessionBench()
	m.idle(kit.Size(sessionsOfBench))
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			m.q.Image()
		}
	})
	var image bytes.Buffer
	if _, err := m.q.Image().WriteTo(&image); err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(image.Len()))
		for b.Loop() {
			if _, err := m.q.Image().WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(image.Len()))
		for b.Loop() {
			if err := m.q.Restore(bytes.NewReader(image.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSessionCycle measures one turn of a consumer: accept the next session, lock its
// message, complete it, send the session another one, release. The others wait with a message
// each, or idle with a state.
func BenchmarkSessionCycle(b *testing.B) {
	for _, c := range []struct {
		name          string
		waiting, idle int
	}{
		{"waiting=1000", 1000, 0}, {"waiting=1000000", sessionsOfBench, 0}, {"waiting=1000/idle=1000000", 1000, sessionsOfBench},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := newSessionBench()
			m.idle(kit.Size(c.idle))
			m.spread(kit.Size(c.waiting), 1)
			send := sendOf(1)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				held := m.apply(fsm.AcceptSession{Entity: 1}).Session
				deliveries := m.apply(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 10, MaxBytes: 1 << 30, Session: held}).Deliveries
				if len(deliveries) == 0 {
					b.Fatal("an accepted session is empty")
				}
				m.complete(deliveries)
				send.Messages[0].Session, send.Messages[0].HasSession = held.ID, true
				m.apply(send)
				m.apply(fsm.ReleaseSession{Entity: 1, Lock: held})
			}
		})
	}
}
