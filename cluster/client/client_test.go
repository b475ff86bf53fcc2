package client

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

func TestPartitionClientNumbersRequestsAndAdvancesLow(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	for range 3 {
		submitted(client)
	}
	group.Await(t, 3, 0)
	first := group.Take()
	for i, s := range first {
		if got := header(t, s.Command); got != (fsm.Header{Incarnation: 77, Serial: uint64(i + 1), Low: 1}) {
			t.Errorf("request %d has %+v", i, got)
		}
	}
	// Low rises over the requests that have ended in sequence, and no further.
	first[0].Done(done(fsm.OK))
	first[2].Done(done(fsm.OK))
	submitted(client)
	group.Await(t, 1, 0)
	if got := header(t, group.Take()[0].Command); got.Serial != 4 || got.Low != 2 {
		t.Errorf("with 2 open: %+v", got)
	}
	first[1].Done(done(fsm.OK))
	submitted(client)
	group.Await(t, 1, 0)
	if got := header(t, group.Take()[0].Command); got.Serial != 5 || got.Low != 4 {
		t.Errorf("with 4 open: %+v", got)
	}
}

// TestAnsweredRequestsHoldNothing: requests that are done stay in the window until older ones are, and must not hold the messages of
// their batches meanwhile: a key that sends small messages could so fill the memory of a member.
func TestAnsweredRequestsHoldNothing(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	submitted(client)
	held := func() weak.Pointer[[1 << 20]byte] {
		batch := new([1 << 20]byte)
		client.Submit(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: batch[:1]}}}, func(fsm.Result) { batch[0]++ })
		return weak.Make(batch)
	}()
	group.Await(t, 2, 0)
	group.Take()[1].Done(done(fsm.OK))
	runtime.GC()
	if held.Value() != nil {
		t.Error("a request that is answered holds its messages, want nothing")
	}
}

func TestPartitionClientRetriesWithTheSameBytes(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]partition.Outcome{"refused": partition.Refused, "unknown": partition.Unknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				group, other := &fakegroup.Group{}, &fakegroup.Group{}
				group.Lead(true, 1)
				client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"other": other})
				ends := []chan fsm.Result{submitted(client), submitted(client), submitted(client)}
				group.Await(t, 3, 0)
				before := group.Take()
				group.Lead(false, 2)
				other.Lead(true, 2)
				for _, s := range before { // in whatever order they end
					s.Done(partition.Answer{Outcome: outcome})
				}
				other.Await(t, 3, 0)
				again := other.Take()
				for i := range before {
					if string(again[i].Command) != string(before[i].Command) {
						t.Errorf("request %d changed, or its place", i)
					}
					again[i].Done(done(fsm.OK))
				}
				for i, end := range ends {
					if result := <-end; result.Code != fsm.OK {
						t.Errorf("request %d ended %v", i, result.Code)
					}
				}
			})
		})
	}
}

// TestPartitionClientLeavesASilentLeader: the leader accepts requests and answers none, while another
// member leads in a later term. The late answer of the first leader still counts, once.
func TestPartitionClientLeavesASilentLeader(t *testing.T) {
	t.Parallel()
	group, other := &fakegroup.Group{}, &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"other": other})
	end := submitted(client)
	group.Await(t, 1, 0)
	stuck := group.Take()[0]
	group.Lead(false, 1)
	other.Lead(true, 2)
	kit.Eventually(t, "the request is sent to the new leader", func() bool {
		client.tick(time.Now())
		other.Mu.Lock()
		defer other.Mu.Unlock()
		return len(other.Submits) == 1
	})
	again := other.Take()[0]
	if string(again.Command) != string(stuck.Command) {
		t.Error("the bytes changed")
	}
	stuck.Done(partition.Answer{Outcome: partition.Unknown}) // no longer has an effect
	again.Done(done(fsm.OK))
	if result := <-end; result.Code != fsm.OK {
		t.Fatalf("ended %v", result.Code)
	}
}

// TestPartitionClientFollowsTheLeaderOfItsReplica: the leader is silent for good, to requests and to questions. The
// replica of this member follows another leader, which is ready only later: the request is sent there although nothing
// has suspected the old one, and no connection has ended.
func TestPartitionClientFollowsTheLeaderOfItsReplica(t *testing.T) {
	t.Parallel()
	group, old, next := &fakegroup.Group{}, &fakegroup.Group{}, &fakegroup.Group{}
	old.Lead(true, 1)
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"old": old, "next": next})
	client.timing.Suspect = time.Hour
	end := submitted(client)
	old.Await(t, 1, 0)
	stuck := old.Take()[0]
	old.Mu.Lock() // it answers no questions from now on
	defer old.Mu.Unlock()
	group.Mu.Lock()
	group.State.Leader, group.State.Term = "next", 2
	group.Mu.Unlock()
	client.leaderChanged()
	next.Lead(true, 2)
	next.Await(t, 1, 0)
	again := next.Take()[0]
	if string(again.Command) != string(stuck.Command) {
		t.Error("the bytes changed")
	}
	again.Done(done(fsm.OK))
	if result := <-end; result.Code != fsm.OK {
		t.Fatalf("ended %v", result.Code)
	}
}

// TestPartitionClientFindsALeaderOutsideThePlacement: a leader that a move has taken out of the placement still leads, because
// the quorum needs it while a replica that stays is damaged. Only followers name it: the replica of this member, or that of another one.
func TestPartitionClientFindsALeaderOutsideThePlacement(t *testing.T) {
	t.Parallel()
	for _, isOwn := range []bool{true, false} {
		leader, follower := &fakegroup.Group{}, &fakegroup.Group{}
		leader.Lead(true, 2)
		follower.State.Leader, follower.State.Term = "leader", 2
		groups := map[fsm.MemberID]*fakegroup.Group{"leader": leader, "other": follower}
		var own *fakegroup.Group
		if isOwn {
			own, groups["other"] = follower, &fakegroup.Group{}
		}
		client := newTestClient(t, own, groups)
		client.transport.(*fakeTransport).others = []fsm.MemberID{"other"}
		answerOne(t, leader, submitted(client))
	}
}

// TestQueriesFollowTheLeaderOfTheReplica: a query waits for the answer of a leader that is silent for good, when the replica of
// this member follows another leader. The query is repeated there at once.
func TestQueriesFollowTheLeaderOfTheReplica(t *testing.T) {
	t.Parallel()
	group, old, next := &fakegroup.Group{}, &fakegroup.Group{}, &fakegroup.Group{}
	old.Lead(true, 1)
	var silent atomic.Bool
	asked, release := make(chan struct{}, 100), make(chan struct{})
	defer close(release)
	old.Asked = func() {
		if silent.Load() {
			asked <- struct{}{}
			<-release
		}
	}
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"old": old, "next": next})
	r := New(&Config{Self: client.self, Transport: client.transport, Timing: Timing{Retry: time.Hour, Suspect: time.Hour}})
	r.clients[client.id] = client
	if leader, err := client.awaitLeader(t.Context()); err != nil || leader != "old" {
		t.Fatal(leader, err)
	}
	silent.Store(true)
	end := make(chan error, 1)
	go func() {
		_, err := r.Leader(client.id)(t.Context(), query.StatusOfReplica.Kind, nil)
		end <- err
	}()
	<-asked
	next.Lead(true, 2)
	client.leaderChanged()
	select {
	case err := <-end:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(kit.WaitMax):
		t.Fatal("the query waits for the silent leader")
	}
}

// TestPartitionClientForgetsTheLeaderWhileItIsIdle: when the replica of this member follows another leader while no request
// is open, the next request is sent to that one at once.
func TestPartitionClientForgetsTheLeaderWhileItIsIdle(t *testing.T) {
	t.Parallel()
	group, old, next := &fakegroup.Group{}, &fakegroup.Group{}, &fakegroup.Group{}
	old.Lead(true, 1)
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"old": old, "next": next})
	client.timing.Suspect = time.Hour
	end := submitted(client)
	answerOne(t, old, end)
	old.Mu.Lock() // it is silent from now on
	defer old.Mu.Unlock()
	client.leaderChanged()
	next.Lead(true, 2)
	end = submitted(client)
	answerOne(t, next, end)
}

// TestPartitionClientSearchesAgainWhenTheLeaderChangesMeanwhile: a replica says that it leads, and before that arrives another
// one is the leader. The request goes to that one, although nothing suspects the first.
func TestPartitionClientSearchesAgainWhenTheLeaderChangesMeanwhile(t *testing.T) {
	t.Parallel()
	group, next := &fakegroup.Group{}, &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"next": next})
	client.timing.Suspect = time.Hour
	var once sync.Once
	group.Asked = func() {
		once.Do(func() {
			group.Lead(false, 2)
			next.Lead(true, 2)
			client.leaderChanged()
		})
	}
	end := submitted(client)
	answerOne(t, next, end)
}

// TestPartitionClientSearchesUntilASuspectedLeaderHasASuccessor: without a replica here that follows the successor, one
// suspicion starts a search that lasts until somebody leads.
func TestPartitionClientSearchesUntilASuspectedLeaderHasASuccessor(t *testing.T) {
	t.Parallel()
	old, next := &fakegroup.Group{}, &fakegroup.Group{}
	old.Lead(true, 1)
	client := newTestClient(t, nil, map[fsm.MemberID]*fakegroup.Group{"old": old, "next": next})
	end := submitted(client)
	old.Await(t, 1, 0)
	old.Take()
	old.Mu.Lock() // it is silent from now on
	defer old.Mu.Unlock()
	client.tick(time.Now().Add(2 * client.timing.Suspect)) // the only one
	asked := next.Questions()
	kit.Eventually(t, "several rounds without a leader", func() bool { return next.Questions() > asked+3 })
	next.Lead(true, 2)
	answerOne(t, next, end)
}

// TestPartitionClientKeepsASlowLeader: a slow leader that still leads keeps its requests, however often
// the client suspects it, and the client suspects it no more often than Suspect allows.
func TestPartitionClientKeepsASlowLeader(t *testing.T) {
	t.Parallel()
	group, other := &fakegroup.Group{}, &fakegroup.Group{}
	other.Lead(true, 1)
	client := newTestClient(t, group, map[fsm.MemberID]*fakegroup.Group{"other": other})
	client.timing.Suspect = 400 * time.Millisecond
	end := submitted(client)
	other.Await(t, 1, 0)
	checks, last := 0, time.Time{}
	const slow = 6 * time.Second
	begun := time.Now()
	for at := tickEvery; at <= slow; at += tickEvery {
		client.tick(begun.Add(at))
		kit.Eventually(t, "who leads is known", func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			return !client.finding
		})
		client.mu.Lock()
		if client.verifiedAt != last {
			checks, last = checks+1, client.verifiedAt
		}
		client.mu.Unlock()
	}
	if most := int(slow / client.timing.Suspect); checks == 0 || checks > most {
		t.Errorf("the leader was doubted %d times in %v, want 1 to %d", checks, slow, most)
	}
	asked := other.Take()
	if len(asked) != 1 {
		t.Fatalf("the leader was asked %d times, want once", len(asked))
	}
	asked[0].Done(done(fsm.OK))
	if result := <-end; result.Code != fsm.OK {
		t.Fatalf("ended %v", result.Code)
	}
}

// TestPartitionClientRetriesARefusedRequest: the client does not retry in a tight loop when a leader
// refuses immediately, from within Submit.
func TestPartitionClientRetriesARefusedRequest(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	tries := 0
	group.Answer = func([]byte) partition.Answer {
		if tries++; tries < 8 {
			return partition.Answer{Outcome: partition.Refused, Result: fsm.Result{Code: fsm.ServerBusy}}
		}
		return done(fsm.OK)
	}
	client := newTestClient(t, group, nil)
	began := time.Now()
	if result := <-submitted(client); result.Code != fsm.OK {
		t.Fatalf("ended %v", result.Code)
	}
	if took := time.Since(began); took < 4*findPauseMin {
		t.Errorf("eight tries in %v", took)
	}
}

// TestPartitionClientDoesNotRetryAFinalRefusal: when no disk has space, the caller gets the refusal
// immediately, and other requests still reach the same leader; a request that may have been applied
// is not reported as refused.
func TestPartitionClientDoesNotRetryAFinalRefusal(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	firm := partition.Answer{Outcome: partition.Refused, Final: true, Result: fsm.Result{Code: fsm.ServerBusy}}
	end := submitted(client)
	group.Await(t, 1, 0)
	group.Take()[0].Done(firm)
	if result := <-end; result.Code != fsm.ServerBusy {
		t.Fatalf("ended %v", result.Code)
	}
	if client.mu.Lock(); client.leader == "" || client.refusals > 0 {
		t.Error("the leader is searched for again")
	}
	client.mu.Unlock()
	perhaps := submitted(client)
	group.Await(t, 1, 0)
	group.Take()[0].Done(partition.Answer{Outcome: partition.Unknown})
	group.Await(t, 1, 0)
	group.Take()[0].Done(firm)
	group.Await(t, 1, 0)
	group.Take()[0].Done(done(fsm.OK))
	if result := <-perhaps; result.Code != fsm.OK {
		t.Fatalf("what may have been done ended %v", result.Code)
	}
}

func TestPartitionClientGivesUpAtTheDeadline(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	client := newTestClient(t, group, nil) // without a leader
	before := time.Now()                   // its minute begins later
	refused := submitted(client)
	client.tick(before.Add(59 * time.Second))
	select {
	case <-refused:
		t.Fatal("given up early")
	default:
	}
	client.tick(time.Now().Add(2 * time.Minute))
	if result := <-refused; result.Code != fsm.ServerBusy { // certainly not applied
		t.Fatalf("never sent: %v", result.Code)
	}
	group.Lead(true, 1)
	perhaps := submitted(client)
	group.Await(t, 1, 0)
	stuck := group.Take()[0]
	client.tick(time.Now().Add(2 * time.Minute))
	if result := <-perhaps; result.Code != fsm.Timeout { // possibly applied
		t.Fatalf("sent: %v", result.Code)
	}
	stuck.Done(done(fsm.OK)) // a late answer has no effect
	// Low has passed both, so the state machine will apply neither of them.
	submitted(client)
	group.Await(t, 1, 0)
	if got := header(t, group.Take()[0].Command); got.Low != 3 || got.Serial != 3 {
		t.Fatalf("after giving up: %+v", got)
	}
}

func TestPartitionClientBoundsWindowAndQueue(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	var ends []chan fsm.Result
	for range outstandingMax + waitingRequestsMax {
		ends = append(ends, submitted(client))
	}
	group.Await(t, outstandingMax, 0)
	if result := <-submitted(client); result.Code != fsm.ServerBusy {
		t.Fatalf("one too many: %v", result.Code)
	}
	client.mu.Lock()
	if client.next-client.low != outstandingMax || len(client.waiting) != waitingRequestsMax {
		t.Errorf("%d in the window, %d wait", client.next-client.low, len(client.waiting))
	}
	client.mu.Unlock()
	// As answers arrive, waiting requests are sent, and all end.
	for open := len(ends); open > 0; {
		group.Await(t, 1, 0)
		for _, s := range group.Take() {
			if h := header(t, s.Command); h.Serial-h.Low >= outstandingMax {
				t.Fatalf("too far ahead: %+v", h)
			}
			s.Done(done(fsm.OK))
			open--
		}
	}
	for _, end := range ends {
		if result := <-end; result.Code != fsm.OK {
			t.Fatalf("ended %v", result.Code)
		}
	}
}

func TestPartitionClientRefusesTooLargeAndInvalidCommands(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	end := make(chan fsm.Result, 1)
	client.Submit(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, rpc.FrameBytesMax)}}}, func(r fsm.Result) { end <- r })
	if result := <-end; result.Code != fsm.MessageTooLarge {
		t.Fatalf("over a frame: %v", result.Code)
	}
	client.Submit(fsm.SendMessages{Entity: 1}, func(r fsm.Result) { end <- r })
	if result := <-end; result.Code != fsm.InvalidArgument {
		t.Fatalf("no messages: %v", result.Code)
	}
	// The command that was never sent does not delay others.
	submitted(client)
	group.Await(t, 1, 0)
	if got := header(t, group.Take()[0].Command); got.Low != got.Serial {
		t.Fatalf("held up: %+v", got)
	}
}

func TestPartitionClientEndsRequestsWhenClosed(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	client := newTestClient(t, group, nil)
	open := submitted(client)
	receiver := &Receiver{client: client, id: 1}
	locks := make(chan fsm.Code, 1)
	receiver.Lock(1, 1, time.Now().Add(time.Minute), func(r fsm.Result) { locks <- r.Code })
	client.close()
	if result := <-open; result.Code != fsm.ServerBusy {
		t.Fatalf("open: %v", result.Code)
	}
	if code := <-locks; code != fsm.ServerBusy {
		t.Fatalf("lock: %v", code)
	}
	if result := <-submitted(client); result.Code != fsm.ServerBusy {
		t.Fatalf("afterwards: %v", result.Code)
	}
}

// TestPartitionClientReportsWhatWasSentAsPossiblyAppliedWhenClosed checks that nobody is told that nothing was done
// while the request may be in the log: a client would send its message a second time.
func TestPartitionClientReportsWhatWasSentAsPossiblyAppliedWhenClosed(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	sent := submitted(client)
	group.Await(t, 1, 0)
	client.close()
	if result := <-sent; result.Code != fsm.Timeout {
		t.Fatalf("ended with %v", result.Code)
	}
}
