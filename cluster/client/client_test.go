package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

// fakeTransport is the environment of one partition client: a local group that may lead, and other
// members behind real connections.
type fakeTransport struct {
	group      *fakegroup.Group
	peerClient *rpc.Client
	others     []fsm.MemberID
	changed    notify.Broadcast
	ctx        context.Context
	tasks      sync.WaitGroup
}

func (w *fakeTransport) LocalReplica(fsm.PartitionID) rpc.Group {
	if w.group == nil {
		return nil
	}
	return w.group
}

func (w *fakeTransport) Conn(m fsm.MemberID) *rpc.Conn                   { return w.peerClient.Conn(m) }
func (w *fakeTransport) LeaderCandidates(fsm.PartitionID) []fsm.MemberID { return w.others }
func (w *fakeTransport) Changes() <-chan struct{}                        { return w.changed.Wait() }
func (w *fakeTransport) Go(task func(ctx context.Context)) (took bool) {
	w.tasks.Go(func() { task(w.ctx) })
	return true
}

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// memberHost is another member that serves a fake group.
type memberHost struct{ group *fakegroup.Group }

func (h memberHost) LocalReplica(fsm.PartitionID) rpc.Group { return h.group }

func (h memberHost) Clock() time.Time { return time.Now() }

func (h memberHost) AnswerQuery(context.Context, rpc.QueryKind, []byte) rpc.Reply {
	s := h.group.Status()
	body, _ := json.Marshal(raftgroup.Status{IsLeader: s.IsLeader, Term: s.Term})
	return rpc.Reply{Status: rpc.StatusOK, Body: body}
}

func newTestClient(t *testing.T, group *fakegroup.Group, others map[fsm.MemberID]*fakegroup.Group) *Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	w := &fakeTransport{group: group, ctx: ctx}
	for member := range others {
		w.others = append(w.others, member)
	}
	w.peerClient = rpc.NewClient(testLogger(), time.Second, func(_ context.Context, to fsm.MemberID) (net.Conn, error) {
		ours, theirs := net.Pipe()
		serving.Go(func() { rpc.Serve(ctx, memberHost{others[to]}, testLogger(), "self", theirs) })
		return ours, nil
	})
	timing := Timing{Retry: time.Minute, Suspect: 50 * time.Millisecond}
	client := newClient(1, &Config{Transport: w, Incarnation: 77, Self: "self", Timing: timing, Now: time.Now, Logger: testLogger()})
	t.Cleanup(func() {
		client.close()
		cancel()
		w.peerClient.Close()
		serving.Wait()
		w.tasks.Wait()
	})
	return client
}

func header(t *testing.T, command []byte) fsm.Header {
	t.Helper()
	info, err := fsm.PeekCommand(command)
	if err != nil {
		t.Fatal(err)
	}
	return info.Header
}

func done(code fsm.Code) partition.Answer {
	return partition.Answer{Outcome: partition.Done, Result: fsm.Result{Code: code}}
}

// submitted starts a send and returns the channel that gets its result.
func submitted(client *Client) chan fsm.Result {
	end := make(chan fsm.Result, 1)
	client.Submit(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("x")}}}, func(r fsm.Result) { end <- r })
	return end
}

// answerOne waits until a group has one request, and answers it with success, which is the end of it.
func answerOne(t *testing.T, group *fakegroup.Group, end chan fsm.Result) {
	t.Helper()
	group.Await(t, 1, 0)
	group.Take()[0].Done(done(fsm.OK))
	if result := <-end; result.Code != fsm.OK {
		t.Fatalf("ended %v", result.Code)
	}
}

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

func TestPartitionClientRetriesWithTheSameBytes(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]partition.Outcome{"refused": partition.Refused, "unknown": partition.Unknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
