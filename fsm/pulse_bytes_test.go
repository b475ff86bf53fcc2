package fsm_test

import (
	"hash/crc32"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

// scratchBodies is a Bodies that keeps the sizes of bodies only, and does the work that a store does
// at least: it copies and sums what is appended.
type scratchBodies struct {
	discardBodies

	appended int
	body     []byte
	sum      uint32
}

func (s *scratchBodies) Append(owner fsm.Owner, b []byte) fsm.Ref {
	s.appended += len(b)
	s.body = append(s.body[:0], b...)
	s.sum = crc32.Checksum(s.body, crc32.MakeTable(crc32.Castagnoli))
	return s.discardBodies.Append(owner, b)
}

func (s *scratchBodies) Read(ref fsm.Ref) []byte { return s.body[:ref.Size] }

// scheduledMessages is a state machine with so many scheduled messages of a size, which
// are due, at a queue or topic.
func scheduledMessages(kind fsm.EntityKind, messages, size int) (*queue.Machine, *scratchBodies, *fsm.Env) {
	bodies := &scratchBodies{}
	q, env := queue.New(bodies), &fsm.Env{Now: 1_000_000}
	apply := func(c fsm.Command) {
		env.Index++
		if code := q.Apply(oneTime(*env), fsm.AppendCommand(nil, fsm.Header{}, c)).Code; code != fsm.OK {
			panic(code)
		}
	}
	settings := fsm.DefaultSettings()
	settings.MaxBytes = 80 << 30
	apply(fsm.PutEntity{Entity: 1, Version: 1, Kind: kind, Settings: settings})
	if kind == fsm.TopicEntity {
		apply(fsm.PutEntity{Entity: 2, Version: 1, Kind: fsm.SubscriptionEntity, Topic: 1, Settings: settings})
	}
	payload := make([]byte, size)
	for range messages {
		apply(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: payload, EnqueueAt: env.Now + 1000}}})
	}
	env.Now += 1000
	return q, bodies, env
}

// TestPulseIsLimitedByBytes: a pulse writes little more than pulseBytesMax of bodies, however many
// messages are due, and the pulses after it do the rest.
func TestPulseIsLimitedByBytes(t *testing.T) {
	t.Parallel()
	const messages, size, bytesMax = 100, 256 << 10, 4 << 20
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
		const pulses = (messages*size + bytesMax - 1) / bytesMax
		q, bodies, env := scheduledMessages(kind, messages, size)
		for range pulses {
			if at, due := firstDeadline(q); !due || at > env.Now {
				t.Fatal("the next pulse is not due")
			}
			before := bodies.appended
			env.Index++
			q.Apply(oneTime(*env), fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
			if n := bodies.appended - before; n >= bytesMax+size {
				t.Errorf("a pulse stored %d bytes", n)
			}
		}
		target := fsm.EntityID(1)
		if kind == fsm.TopicEntity {
			target = 2
		}
		if c, _ := q.Counts(target); c.Active != messages {
			t.Errorf("%d messages are active after %d pulses", c.Active, pulses)
		}
	}
}

// BenchmarkPulseOfLargeMessages measures the longest pulse while 1,000 scheduled messages of 1 MiB become
// active: it is the time for which nothing else is applied.
func BenchmarkPulseOfLargeMessages(b *testing.B) {
	longest, pulses := time.Duration(0), 0
	for range b.N {
		b.StopTimer()
		q, _, env := scheduledMessages(fsm.QueueEntity, 1000, 1<<20)
		pulse := fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{})
		b.StartTimer()
		for c, _ := q.Counts(1); c.Active < 1000; c, _ = q.Counts(1) {
			start := time.Now()
			env.Index++
			q.Apply(oneTime(*env), pulse)
			longest = max(longest, time.Since(start))
			pulses++
		}
	}
	b.ReportMetric(float64(longest.Microseconds()), "longest-us")
	b.ReportMetric(float64(pulses)/float64(b.N), "pulses/op")
}

// TestSettingAsideIsLimitedByBytes: when batches are taken, an entry dead-letters little more than
// setAsideBytesMax of messages that cannot be forwarded, whichever queues they are in, and the next
// entries do the rest.
func TestSettingAsideIsLimitedByBytes(t *testing.T) {
	t.Parallel()
	const messages, size, bytesMax = 12, 900 << 10, 4 << 20
	patches := fsm.AppendPatches(nil, []fsm.Patch{{Properties: make([]byte, size)}})
	b := newBetween(t)
	for id := fsm.EntityID(1); id < 3; id++ {
		b.put(id, 1, onward)
		for serial := range uint64(messages) {
			m := carried("x")
			m.Hops, m.Patches = 4, patches // it was forwarded as often as a message may be
			c := transferOf(serial+1, m)
			c.Entity = id
			b.must(c)
		}
	}
	entries := 0
	for dead := uint64(0); dead < 2*messages; entries++ {
		b.env.Index++
		for id := fsm.EntityID(1); id < 3; id++ {
			b.q.Apply(oneTime(b.env), fsm.AppendCommand(nil, fsm.Header{}, take(id, 10)))
		}
		before := dead
		dead = b.counts(1).DeadLetter + b.counts(2).DeadLetter
		if n := (dead - before) * size; dead == before || n >= bytesMax+size {
			t.Fatalf("an entry dead-lettered %d bytes", n)
		}
	}
	if entries != 5 {
		t.Errorf("%d entries, want 5", entries)
	}
}
