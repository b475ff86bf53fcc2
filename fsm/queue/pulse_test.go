package queue

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	chunkMessages = 1024 // messages of one timer
	staleTimers   = 64   // stale timers that a sub-queue may always have
)

// dueNow returns the times of everything that is due, earliest first.
func dueNow(q *Machine) []fsm.Instant {
	var list []fsm.Instant
	note := func(at fsm.Instant) {
		if at != 0 && at <= q.times.Wall {
			list = append(list, at)
		}
	}
	for _, x := range q.entities {
		note(x.idleDue())
		for i := range x.subs {
			sub := &x.subs[i]
			sub.ix.Freeze().Walk(0, func(_ fsm.SequenceNumber, rec *index.Record, _ fsm.Ref, _ uint32) bool {
				if rec.State() == fsm.Locked {
					note(rec.Deadline())
				} else {
					note(sub.ix.DueAt(rec))
				}
				return true
			})
		}
	}
	slices.Sort(list)
	return list
}

// crowd fills queues with messages that end, wait and are locked at all times of ten
// seconds.
func crowd(apply func(fsm.Instant, fsm.Command) fsm.Result, queues, messages int) {
	r := rand.New(rand.NewPCG(1, 2))
	settings := fsm.DefaultSettings()
	settings.LockDuration, settings.MaxDeliveryCount, settings.DeadLetterTimeToLive = 5000, 2, 7000
	for id := range fsm.EntityID(queues) {
		settings.DeadLetterOnExpiry = id%2 == 0
		settings.RetryDelay, settings.RetryDelayMax = 0, 0
		if id == 1 {
			settings.RetryDelay, settings.RetryDelayMax = 1000, 5000
		}
		apply(1000, fsm.PutEntity{Entity: id + 1, Version: 1, Settings: settings})
		for range messages / 100 {
			now := fsm.Instant(1000 + r.IntN(10_000))
			c := fsm.SendMessages{Entity: id + 1, Messages: make([]fsm.Message, 100)}
			for i := range c.Messages {
				switch r.IntN(4) {
				case 0:
					c.Messages[i].TimeToLive = fsm.Millis(1 + r.IntN(10_000))
				case 1:
					c.Messages[i].EnqueueAt = now + fsm.Instant(r.IntN(10_000))
				case 2:
					c.Messages[i].TimeToLive = 5000
				}
			}
			apply(now, c)
			d := apply(now, fsm.LockMessages{Address: fsm.Address{Entity: id + 1}, Max: uint32(1 + r.IntN(50)), MaxBytes: 1 << 20}).Deliveries
			s := fsm.SettleMessages{Address: fsm.Address{Entity: id + 1}}
			for i := range len(d) / 2 {
				s.Settlements = append(s.Settlements, fsm.Settlement{Lock: d[i].Lock, Verb: []fsm.Verb{fsm.Complete, fsm.Abandon, fsm.DeadLetter, fsm.Release}[r.IntN(4)]})
			}
			if len(s.Settlements) > 0 {
				apply(now, s)
			}
		}
	}
}

// TestPulsesAgree: pulses that reach their limit stop at the same message on every replica,
// restored from an image or not, and process what is due strictly in the order of time.
func TestPulsesAgree(t *testing.T) {
	t.Parallel()
	q := New(&countingBodies{})
	serial := uint64(0)
	machines := []*Machine{q}
	apply := func(now fsm.Instant, c fsm.Command) fsm.Result {
		serial++
		h := fsm.Header{Incarnation: 1, Serial: serial, Low: serial}
		if (c == fsm.Pulse{}) {
			h = fsm.Header{}
		}
		b := fsm.AppendCommand(nil, h, c)
		res := machines[0].Apply(oneTime(fsm.Env{Index: serial, Now: now}), b)
		for _, other := range machines[1:] {
			other.Apply(oneTime(fsm.Env{Index: serial, Now: now}), b)
		}
		return res
	}
	crowd(apply, 4, 3000)
	cut := 0
	for now := fsm.Instant(10_000); now < 40_000; now += 7000 {
		var image bytes.Buffer
		kit.Must(q.Image().WriteTo(&image))(t)
		next := New(&countingBodies{})
		kit.OK(t, next.Restore(&image))
		machines = append(machines, next)
		apply(now, fsm.Pulse{})
		for pulses := 0; ; pulses++ {
			before := dueNow(q)
			if len(before) == 0 && pulses > 0 {
				break
			}
			apply(now, fsm.Pulse{})
			after := dueNow(q)
			if len(before) > fsm.PulseMessagesMax {
				cut++
			}
			if moved := min(len(before), fsm.PulseMessagesMax); !slices.Equal(after, before[moved:]) {
				t.Fatalf("at %d a pulse left %d of %d, or not the latest of them", now, len(after), len(before))
			}
			for i, other := range machines[1:] {
				if q.Digest() != other.Digest() {
					t.Fatalf("at %d, after %d pulses, replica %d is another", now, pulses, i)
				}
			}
		}
		if due, ok := firstDeadline(q); ok && due <= now {
			t.Errorf("at %d something is still due at %d", now, due)
		}
	}
	if cut < 3 {
		t.Errorf("only %d pulses met their limit", cut)
	}
}

// TestTimersOfExpiringMessagesAreBounded: neither lives that end earlier and earlier nor messages that
// go before their time leave timers behind.
func TestTimersOfExpiringMessagesAreBounded(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	at := fsm.Address{Entity: 1}
	sub := q.subqueueAt(at)
	for i := range 30_000 {
		apply(1, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{TimeToLive: fsm.Millis(1_000_000 - i)}}})
		if i%3 == 0 {
			apply(1, fsm.PurgeMessages{Address: at, Max: 2})
		}
		chunks := 0
		if first, found := sub.ix.FirstReady(); found {
			chunks = int(fsm.SequenceNumber(i+1)/chunkMessages-sub.ix.Number(first)/chunkMessages) + 1
		}
		if n := sub.ix.Timers(fsm.WallTime); n > 2*chunks+staleTimers+2 {
			t.Fatalf("%d alarms for %d chunks", n, chunks)
		}
	}
	apply(1, fsm.PurgeMessages{Address: at, Max: 4000})
	for range 200 {
		c := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 2000)}
		for i := range c.Messages {
			c.Messages[i].TimeToLive = 1_000_000
		}
		apply(1, c)
		apply(1, fsm.PurgeMessages{Address: at, Max: 4000})
		if n := sub.ix.Timers(fsm.WallTime); n > staleTimers+12 {
			t.Fatalf("%d alarms for an empty queue", n)
		}
	}
	settings := fsm.DefaultSettings()
	for version := range uint64(1000) {
		settings.AutoDeleteOnIdle = []fsm.Millis{fsm.Forever, fsm.AutoDeleteMin}[version%2]
		apply(1, fsm.PutEntity{Entity: 1, Version: version + 2, Settings: settings})
		if n := sub.ix.Timers(fsm.ServingTime); n > staleTimers+12 {
			t.Fatalf("%d alarms for an empty queue", n)
		}
	}
}

// TestTombstonesOfImageAreImmutable: queues that are deleted because they are idle after an image
// are not in it.
func TestTombstonesOfImageAreImmutable(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	settings := fsm.DefaultSettings()
	for id := fsm.EntityID(1); id <= 9; id++ {
		settings.AutoDeleteOnIdle = fsm.AutoDeleteMin + fsm.Millis(10-id)*1000 // the last one first
		apply(1, fsm.PutEntity{Entity: id, Version: 1, Settings: settings})
	}
	var want []fsm.EntityID
	for id := fsm.EntityID(9); id >= 1; id-- {
		img := q.Image()
		before := imageBytes(t, img)
		apply(1+fsm.Instant(fsm.AutoDeleteMin)+fsm.Instant(10-id)*1000, fsm.Pulse{})
		want = append([]fsm.EntityID{id}, want...)
		if got := q.Tombstones(); !slices.Equal(got, want) {
			t.Fatalf("gone are %v, want %v", got, want)
		}
		late := q.Image()
		after := imageBytes(t, late)
		if id%2 == 0 {
			apply(1, fsm.DropEntity{Entity: id})
			want = want[1:]
		}
		if !bytes.Equal(before, imageBytes(t, img)) || !bytes.Equal(after, imageBytes(t, late)) {
			t.Fatal("an image changed")
		}
	}
}

func imageBytes(t *testing.T, img fsm.Image) []byte {
	var b bytes.Buffer
	kit.Must(img.WriteTo(&b))(t)
	return b.Bytes()
}

// TestLockExpiresMessagesInSteps: a lock expires a bounded number of messages, and asks the leader
// to repeat it for the rest.
func TestLockExpiresMessagesInSteps(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	settings := fsm.DefaultSettings()
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
	short := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 2500)}
	for i := range short.Messages {
		short.Messages[i].TimeToLive = 10
	}
	apply(1, short)
	apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 1)})
	q.Effects()
	lock := fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 5}
	for _, left := range []uint64{1501, 501} {
		if res := apply(100, lock); len(res.Deliveries) != 0 || q.Messages() != left {
			t.Fatalf("%d deliveries, %d messages left, want %d", len(res.Deliveries), q.Messages(), left)
		}
		if e := q.Effects(); len(e) != 1 || e[0].Ready != left {
			t.Fatalf("effects %v", e)
		}
	}
	if res := apply(100, lock); len(res.Deliveries) != 1 || res.Deliveries[0].Lock.Sequence != 2501 {
		t.Errorf("%+v", res)
	}
	// The same for what is fetched by number.
	apply(100, short)
	var fetch fsm.FetchDeferred
	for len(fetch.Sequences) < 2500 {
		d := apply(100, fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 2500}).Deliveries
		s := fsm.SettleMessages{Address: fsm.Address{Entity: 1}}
		for i := range d {
			s.Settlements = append(s.Settlements, fsm.Settlement{Lock: d[i].Lock, Verb: fsm.Defer})
			fetch.Sequences = append(fetch.Sequences, d[i].Lock.Sequence)
		}
		apply(100, s)
	}
	fetch.Address = fsm.Address{Entity: 1}
	if apply(200, fetch); q.Messages() != 1501 {
		t.Errorf("%d messages left, want 1501", q.Messages())
	}
}

// TestPurgeExpiresMessagesInSteps: a purge expires a bounded number of messages.
func TestPurgeExpiresMessagesInSteps(t *testing.T) {
	t.Parallel()
	q := New(noBodies{})
	apply := testApply(q)
	apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()})
	short := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 1500)}
	for i := range short.Messages {
		short.Messages[i].TimeToLive = 10
	}
	apply(1, short)
	apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 3)})
	for _, want := range []uint64{0, 2, 1} {
		if res := apply(100, fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 2}); res.Count != want {
			t.Errorf("%d purged, want %d", res.Count, want)
		}
	}
}

// releasing counts what is released.
type releasing struct {
	countingBodies
	released int
}

func (r *releasing) Release(fsm.Ref) { r.released++ }

// TestBigQueueIsDeletedInSteps: the bodies of a big deleted queue are released in several steps,
// none is forgotten, and a replica that was restored in between is equal.
func TestBigQueueIsDeletedInSteps(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]bool{"dropped": false, "idle": true} {
		bodies := &releasing{}
		q := New(bodies)
		apply := testApply(q)
		settings := fsm.DefaultSettings()
		settings.AutoDeleteOnIdle = fsm.AutoDeleteMin
		apply(1, fsm.PutEntity{Entity: 1, Version: 1, Settings: settings})
		const messages = 20_000
		for range messages / 1000 {
			apply(1, fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 1000)})
		}
		now := fsm.Instant(2)
		if idle {
			now = 1 + fsm.Instant(fsm.AutoDeleteMin)
			apply(now, fsm.Pulse{})
		} else {
			apply(now, fsm.DropEntity{Entity: 1})
		}
		if bodies.released == 0 || bodies.released > releasesPerApply {
			t.Errorf("%s: %d bodies are released at once", name, bodies.released)
		}
		if q.Messages() != 0 || q.Holds(fsm.Owner{Address: fsm.Address{Entity: 1}, Sequence: 9000}, fsm.Ref{Segment: 1, Offset: 9000}) {
			t.Errorf("%s: messages are still there", name)
		}
		other := New(bodies)
		kit.OK(t, other.Restore(bytes.NewReader(imageBytes(t, q.Image()))))
		for pulses := 0; len(q.pendingReleases) > 0; pulses++ {
			before := bodies.released
			if at, ok := firstDeadline(q); !ok || at != now || pulses > 5 {
				t.Fatalf("%s: after %d pulses due at %d %v", name, pulses, at, ok)
			}
			apply(now, fsm.Pulse{})
			if n := bodies.released - before; n == 0 || n > releasesPerApply+releasesPerPulse {
				t.Errorf("%s: a pulse released %d bodies", name, n)
			}
		}
		if bodies.released != messages {
			t.Errorf("%s: %d bodies are released in the end", name, bodies.released)
		}
		if q.Digest() != other.Digest() {
			t.Errorf("%s: the restored replica is another", name)
		}
	}
}
