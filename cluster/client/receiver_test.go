package client

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// TestReceiverResolvesALockWithUnknownOutcome: when the outcome of a Lock is unknown, the receiver submits
// the same header again, without waiting, until the state machine reports what it has locked.
func TestReceiverResolvesALockWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	receiver := &Receiver{client: client, id: 5}
	got := make(chan fsm.Result, 1)
	receiver.Lock(2, 100, time.Now().Add(time.Minute), func(r fsm.Result) { got <- r })
	group.Await(t, 0, 1)
	want := fsm.Header{Incarnation: 77, Receiver: 5, Serial: 1, Low: 1}
	if group.Locks[0].Header != want {
		t.Fatalf("lock with %+v", group.Locks[0].Header)
	}
	group.Locks[0].Done(partition.Answer{Outcome: partition.Unknown})
	group.Await(t, 1, 1)
	probe := group.Take()[0]
	if header(t, probe.Command) != want {
		t.Fatalf("probe with %+v", header(t, probe.Command))
	}
	// It has locked nothing: the receiver waits again, for the remaining time.
	probe.Done(done(fsm.OK))
	group.Await(t, 0, 2)
	if group.Locks[1].Header != want {
		t.Fatalf("lock again with %+v", group.Locks[1].Header)
	}
	group.Locks[1].Done(partition.Answer{Outcome: partition.Unknown})
	group.Await(t, 1, 2)
	// Even a cancelled Lock waits for the answer, because messages may be locked for it.
	receiver.Cancel()
	select {
	case early := <-got:
		t.Fatalf("ended with %+v", early)
	default:
	}
	answer := done(fsm.OK)
	answer.Result.Deliveries = []fsm.Delivery{{Lock: fsm.LockID{Sequence: 1, Epoch: 1}}}
	group.Take()[0].Done(answer)
	if end := <-got; end.Code != fsm.OK || len(end.Deliveries) != 1 {
		t.Fatalf("ended with %+v", end)
	}
	// The next Lock has the next serial, and closing frees the receiver id.
	receiver.Lock(1, 1, time.Now().Add(time.Minute), func(fsm.Result) {})
	group.Await(t, 0, 3)
	if h := group.Locks[2].Header; h.Serial != 2 || h.Low != 2 {
		t.Fatalf("next lock with %+v", h)
	}
	receiver.Close()
	group.Await(t, 1, 3)
	_, command, err := fsm.DecodeCommand(group.Take()[0].Command)
	if err != nil || command != (fsm.CloseReceiver{Incarnation: 77, Receiver: 5}) {
		t.Fatalf("closed with %#v, %v", command, err)
	}
}

// TestReceiverKeepsWhatALaterLeaderHasRemoved: a request of receive-and-delete waits at a leader that loses its leadership
// unnoticed, and is sent to its successor, which removes a message. The wait at the former leader ends before the successor
// answers: the request must not end with it, because the message would be lost.
func TestReceiverKeepsWhatALaterLeaderHasRemoved(t *testing.T) {
	t.Parallel()
	group, other := &fakegroup.Group{}, &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"other": other})
	receiver := &Receiver{client: client, id: 5, receiveAndDelete: true}
	got := make(chan fsm.Result, 2)
	receiver.Lock(1, 100, time.Now().Add(time.Minute), func(r fsm.Result) { got <- r })
	group.Await(t, 0, 1)
	group.Lead(false, 1)
	other.Lead(true, 2)
	client.leaderChanged()
	other.Await(t, 1, 0)
	group.Locks[0].Done(done(fsm.OK))
	select {
	case early := <-got:
		t.Fatalf("ended with %+v", early)
	default:
	}
	answer := done(fsm.OK)
	answer.Result.Deliveries = []fsm.Delivery{{Lock: fsm.LockID{Sequence: 1, Epoch: 1}}}
	other.Take()[0].Done(answer)
	if end := <-got; end.Code != fsm.OK || len(end.Deliveries) != 1 {
		t.Fatalf("ended with %+v", end)
	}
}

func TestReceiverRefusesASecondConcurrentLock(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	receiver := &Receiver{client: client, id: 1}
	receiver.Lock(1, 1, time.Now().Add(time.Minute), func(fsm.Result) {})
	group.Await(t, 0, 1)
	second := make(chan fsm.Code, 1)
	receiver.Lock(1, 1, time.Now().Add(time.Minute), func(r fsm.Result) { second <- r.Code })
	if code := <-second; code != fsm.ServerBusy {
		t.Fatalf("a second lock: %v", code)
	}
	receiver.Cancel()
}

// TestSessionReceiverDoesNotSkipWhatMayBeLocked: when nobody answers for so long that a Lock is given up, messages may be locked
// for it. Under the lock of a session the next Lock would get what comes behind them.
func TestSessionReceiverDoesNotSkipWhatMayBeLocked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		session fsm.SessionLock
		want    fsm.Code
	}{{fsm.SessionLock{ID: "s", Epoch: 1}, fsm.ServerBusy}, {fsm.SessionLock{}, fsm.OK}} {
		group := &fakegroup.Group{}
		group.Lead(true, 1)
		client := newTestClient(t, group, nil)
		receiver := &Receiver{client: client, id: 1, session: c.session}
		got := make(chan fsm.Code, 1)
		receiver.Lock(1, 1, time.Now().Add(time.Second), func(r fsm.Result) { got <- r.Code })
		group.Await(t, 0, 1)
		client.tick(time.Now().Add(time.Second + client.timing.Retry + time.Second))
		if code := <-got; code != c.want {
			t.Errorf("session %q: %v, want %v", c.session.ID, code, c.want)
		}
	}
}

// TestReceiverEndsAtItsTimeWithoutALeader: a Lock whose time expires without a leader ends empty.
func TestReceiverEndsAtItsTimeWithoutALeader(t *testing.T) {
	t.Parallel()
	client := newTestClient(t, &fakegroup.Group{}, nil)
	receiver := &Receiver{client: client, id: 1}
	got := make(chan fsm.Result, 2)
	end := func(r fsm.Result) { got <- r }
	receiver.Lock(1, 1, time.Now().Add(time.Second), end)
	client.tick(time.Now().Add(2 * time.Second))
	if g := <-got; g.Code != fsm.OK || len(g.Deliveries) != 0 {
		t.Fatalf("ran out with %+v", g)
	}
	receiver.Lock(1, 1, time.Now().Add(time.Minute), end)
	receiver.Cancel()
	if g := <-got; g.Code != fsm.OK || len(g.Deliveries) != 0 {
		t.Fatalf("cancelled with %+v", g)
	}
}

// A receiver for which the leader has no place waits at its member and asks again later. The leader stays the leader for all
// other requests, which are not delayed, and the receiver is not ended for it.
func TestReceiverWithoutAPlaceWaits(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	receiver := &Receiver{client: client, id: 5}
	got := make(chan fsm.Result, 1)
	receiver.Lock(2, 100, time.Now().Add(time.Minute), func(r fsm.Result) { got <- r })
	group.Await(t, 0, 1)
	group.Locks[0].Done(partition.Answer{Outcome: partition.Refused, Result: fsm.Result{Code: fsm.ServerBusy}})
	client.mu.Lock()
	leader, refusals := client.leader, client.refusals
	client.mu.Unlock()
	if leader == "" || refusals != 0 {
		t.Errorf("leader %q after %d refusals", leader, refusals)
	}
	select {
	case r := <-got:
		t.Fatalf("ended with %+v", r)
	default:
	}
	group.Await(t, 0, 2) // after busyPauseMin
	group.Locks[1].Done(partition.Answer{Outcome: partition.Refused, Result: fsm.Result{Code: fsm.ServerBusy}})
	receiver.Cancel()
	if r := <-got; r.Code != fsm.OK || len(r.Deliveries) != 0 {
		t.Errorf("cancelled with %+v", r)
	}
}

// The receivers of one entity register as many ids as are free, and those beyond wait for one that is closed; a receiver of
// another entity registers meanwhile.
func TestEntitiesShareTheIDsOfReceivers(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	of := func(id fsm.EntityID) *Receiver {
		return &Receiver{client: client, id: uint64(id), at: fsm.EntityRef{Entity: fsm.Entity{ID: id}}}
	}
	client.mu.Lock()
	var all []*Receiver
	for {
		r := of(1)
		if !r.register() {
			break
		}
		all = append(all, r)
	}
	other := of(2)
	if registered := other.register(); len(all) != registeredMax/2 || !registered {
		t.Errorf("%d receivers of one entity, and of another one: %v", len(all), registered)
	}
	client.mu.Unlock()
	late := of(1)
	late.Lock(1, 1, time.Now().Add(time.Minute), func(fsm.Result) {})
	for _, r := range all {
		r.Close()
		r.Close() // has no effect
	}
	group.Await(t, 0, 1) // after busyPauseMin
	client.mu.Lock()
	defer client.mu.Unlock()
	if c := client.registered; c.total != 2 || c.entities[1] != 1 || !late.registered {
		t.Errorf("%+v at the end", c)
	}
}
