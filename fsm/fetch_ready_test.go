package fsm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

// TestFetchReadyLocksAsLockDoes runs random histories at two queues. In one of them the oldest messages are locked, in
// the other one the same messages are locked as a peek shows them: deliveries, delivery counts, expiry and dead letters are alike.
func TestFetchReadyLocksAsLockDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 29))
			a, b := newBetween(t), newBetween(t)
			at := fsm.Address{Entity: 1}
			serial := uint64(0)
			both := func(c, d fsm.Command) (x, y fsm.Result) {
				t.Helper()
				serial++
				h := fsm.Header{Incarnation: 7, Serial: serial, Low: serial}
				a.env.Index++
				x, y = a.q.Apply(oneTime(a.env), fsm.AppendCommand(nil, h, c)), b.q.Apply(oneTime(a.env), fsm.AppendCommand(nil, h, d))
				if diff := cmp.Diff(a.show(x), b.show(y)); diff != "" {
					t.Fatalf("entry %d, %T and %T: %s", a.env.Index, c, d, diff)
				}
				return x, y
			}
			settings := fsm.DefaultSettings()
			settings.LockDuration, settings.MaxDeliveryCount, settings.DeadLetterOnExpiry = 5000, 3, seed%2 == 0
			for _, c := range []fsm.Command{fsm.PutEntity{Entity: 1, Version: 1, Settings: settings}} {
				both(c, c)
			}
			var held []fsm.LockID
			for range 400 {
				switch r.IntN(5) {
				case 0:
					m := fsm.Message{Payload: []byte("m"), TimeToLive: fsm.Millis(r.IntN(3)) * 4000}
					c := fsm.SendMessages{Entity: 1, Messages: []fsm.Message{m, m}}
					both(c, c)
				case 1:
					n := 1 + r.IntN(4)
					list := oldestReady(b.q, at, n)
					lock := fsm.LockMessages{Address: at, Max: uint32(n), MaxBytes: 1 << 20, Delete: r.IntN(5) == 0}
					if len(list) == 0 {
						break
					}
					res, _ := both(lock, fsm.FetchReady{Address: at, Seen: list, Delete: lock.Delete})
					for _, d := range res.Deliveries {
						held = append(held, d.Lock)
					}
				case 2, 3:
					if len(held) == 0 {
						break
					}
					c := fsm.SettleMessages{Address: at, Settlements: []fsm.Settlement{{Lock: held[r.IntN(len(held))], Verb: fsm.Verb(1 + r.IntN(5))}}}
					both(c, c)
				case 4:
					a.env.Now += fsm.Instant(r.IntN(3000))
					a.env.Serving = a.env.Now
					both(fsm.Pulse{}, fsm.Pulse{})
				}
				for sub := fsm.MainQueue; sub <= fsm.DeadLetterQueue; sub++ {
					if diff := cmp.Diff(a.list(a.q.Peek(fsm.Address{Entity: 1, Sub: sub}, 0, 4096)), b.list(b.q.Peek(fsm.Address{Entity: 1, Sub: sub}, 0, 4096))); diff != "" {
						t.Fatalf("entry %d: %s", a.env.Index, diff)
					}
				}
				if x, y := a.counts(1), b.counts(1); x != y || a.q.NextDeadline() != b.q.NextDeadline() {
					t.Fatalf("entry %d: counts %+v and %+v, next deadlines %v and %v", a.env.Index, x, y, a.q.NextDeadline(), b.q.NextDeadline())
				}
			}
		})
	}
}

// oldestReady returns the oldest ready messages that have not expired, with the epochs of their last locks.
func oldestReady(q *queue.Machine, at fsm.Address, n int) (list []fsm.LockID) {
	for _, d := range q.Peek(at, 0, 4096) {
		expired := d.Expires != 0 && d.Expires <= q.Times().Wall
		if d.State == fsm.Ready && (!expired || at.Sub != fsm.MainQueue) && len(list) < n {
			list = append(list, d.Lock)
		}
	}
	return list
}

// TestFetchReadyLeavesOutWhatIsNotReady: messages that are locked, deferred, scheduled, expired, gone, or were locked since
// the peek are left out, one that comes twice is delivered once, and the order is that of the command.
func TestFetchReadyLeavesOutWhatIsNotReady(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	at := fsm.Address{Entity: 1}
	b.send(1, 3, fsm.Message{Payload: []byte("m")})
	held := b.must(fsm.LockMessages{Address: at, Max: 3, MaxBytes: 100}).Deliveries
	b.must(settleIn(at, fsm.Defer, held[1].Lock))
	b.must(settleIn(at, fsm.Complete, held[2].Lock))
	b.send(1, 1, fsm.Message{EnqueueAt: b.env.Now + 60_000}) // 4
	b.send(1, 1, fsm.Message{TimeToLive: 5})                 // 5
	b.send(1, 3, fsm.Message{Payload: []byte("m")})          // 6 to 8
	b.env.Now += 10
	c := fsm.FetchReady{Address: at}
	for _, n := range []fsm.SequenceNumber{8, 1, 2, 3, 4, 5, 6, 8, 99} {
		c.Seen = append(c.Seen, fsm.LockID{Sequence: n}, fsm.LockID{Sequence: n, Epoch: 1})
	}
	res := b.must(c)
	if len(res.Deliveries) != 2 || res.Deliveries[0].Lock.Sequence != 8 || res.Deliveries[1].Lock.Sequence != 6 {
		t.Fatalf("deliveries %+v", res.Deliveries)
	}
	if counts := b.counts(1); counts.Active != 4 || counts.Locked != 3 || counts.Deferred != 1 || counts.Scheduled != 1 {
		t.Errorf("%+v", counts)
	}
	b.must(settleIn(at, fsm.Abandon, res.Deliveries[0].Lock))
	if other := b.must(fsm.FetchReady{Address: at, Seen: []fsm.LockID{{Sequence: 8}, {Sequence: 8, Epoch: 2}}}).Deliveries; other != nil {
		t.Errorf("as it was not peeked at: %+v", other)
	}
	again := b.must(c).Deliveries
	if len(again) != 1 || again[0].Lock != (fsm.LockID{Sequence: 8, Epoch: 2}) || again[0].FailedDeliveries != 1 {
		t.Errorf("after it was abandoned: %+v", again)
	}
}

// TestFetchReadyIsRefused lists what refuses it: sessions, and what refuses every receiver. A
// receive-and-delete whose answer nobody remembers is refused as well.
func TestFetchReadyIsRefused(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	fetch := func(id fsm.EntityID) fsm.FetchReady {
		return fsm.FetchReady{Address: fsm.Address{Entity: id}, Seen: []fsm.LockID{{Sequence: 1}}}
	}
	b.put(1, 1, nil)
	b.put(2, 1, func(s *fsm.EntitySettings) { s.RequiresSession = true })
	b.put(3, 1, func(s *fsm.EntitySettings) { s.Status = fsm.ReceiveDisabled })
	b.put(4, 1, onward)
	b.send(1, 1, fsm.Message{})
	remove := fetch(1)
	remove.Delete = true
	for name, row := range map[string]struct {
		command fsm.FetchReady
		want    fsm.Code
	}{
		"no entity":       {fetch(9), fsm.EntityNotFound},
		"sessions":        {fetch(2), fsm.NotAllowed},
		"disabled":        {fetch(3), fsm.EntityDisabled},
		"forwards":        {fetch(4), fsm.NotAllowed},
		"no messages":     {fsm.FetchReady{Address: fsm.Address{Entity: 1}}, fsm.InvalidArgument},
		"no remembering":  {remove, fsm.InvalidArgument},
		"nothing refuses": {fetch(1), fsm.OK},
	} {
		if code := b.do(row.command).Code; code != row.want {
			t.Errorf("%s: %v, want %v", name, code, row.want)
		}
	}
}
