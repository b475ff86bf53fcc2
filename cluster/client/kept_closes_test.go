package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

// closedReceiver returns the receiver that a command closes.
func closedReceiver(t *testing.T, bytes []byte) uint64 {
	t.Helper()
	_, command, err := fsm.DecodeCommand(bytes)
	c, isClose := command.(fsm.CloseReceiver)
	if err != nil || !isClose || c.Incarnation != 77 {
		t.Errorf("submitted %#v, %v", command, err)
	}
	return c.Receiver
}

// TestReceiversAreClosedAfterALongRefusal: receivers that are closed while their partition refuses everything, for several times
// Timing.Retry, are closed there when it serves again, each once.
func TestReceiversAreClosedAfterALongRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const receivers = 100
		group := &fakegroup.Group{}
		group.Lead(true, 1)
		client := newTestClient(t, group, nil)
		var open []*Receiver
		for i := range receivers {
			receiver := &Receiver{client: client, id: uint64(1 + i)}
			receiver.Lock(1, 1, time.Now().Add(time.Minute), func(fsm.Result) {})
			group.Await(t, 0, 1+i)
			group.Locks[i].Done(done(fsm.OK))
			open = append(open, receiver)
		}
		answerAll := func(answer func(bytes []byte) partition.Answer) {
			group.Mu.Lock()
			group.Answer = answer
			group.Mu.Unlock()
		}
		answerAll(func([]byte) partition.Answer { return partition.Answer{Outcome: partition.Refused} })
		for _, receiver := range open {
			receiver.Close()
		}
		group.Await(t, receivers, 0)
		now := time.Now()
		for range 3 {
			synctest.Wait() // nothing is on its way to the group that is given up below
			now = now.Add(2 * client.timing.Retry)
			client.tick(now) // gives up what is overdue, and closes again
		}
		synctest.Wait()
		closed := make(chan uint64, 10*receivers)
		answerAll(func(bytes []byte) partition.Answer {
			closed <- closedReceiver(t, bytes)
			return done(fsm.OK)
		})
		times := make(map[uint64]int) // by receiver
		for range receivers {
			select {
			case id := <-closed:
				times[id]++
			case <-time.After(kit.WaitMax):
				t.Fatalf("%d of %d receivers were closed", len(times), receivers)
			}
		}
		kit.Eventually(t, "nothing is outstanding", func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			return client.low == client.next && client.closes.outstanding == 0
		})
		client.tick(now.Add(2 * client.timing.Retry))
		if len(times) != receivers || len(closed) > 0 {
			t.Errorf("%d of %d receivers were closed, then %d again", len(times), receivers, len(closed))
		}
	})
}

// TestClosesAreBounded: of very many receivers that are closed at a time, few have a place among the outstanding requests, so that a
// send does not wait behind them; the others are kept up to a limit, and follow one after the other.
func TestClosesAreBounded(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	for id := range uint64(keptClosesMax + 10) {
		client.closeReceiver(id)
	}
	group.Await(t, closesMax, 0)
	client.Submit(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("m")}}}, func(fsm.Result) {})
	group.Await(t, closesMax+1, 0)
	outstanding := group.Take()
	if len(outstanding) != closesMax+1 {
		t.Fatalf("%d requests are outstanding, want %d closes and a send", len(outstanding), closesMax)
	}
	client.mu.Lock()
	if open := len(client.closes.receivers) + client.closes.outstanding; open != keptClosesMax {
		t.Errorf("%d closes are open, want %d", open, keptClosesMax)
	}
	client.mu.Unlock()
	for i, s := range outstanding[:closesMax] {
		if id := closedReceiver(t, s.Command); id != uint64(i) {
			t.Fatalf("closed %d, want %d", id, i)
		}
		s.Done(done(fsm.OK))
		group.Await(t, 1, 0)
		next := group.Take()
		if id := closedReceiver(t, next[0].Command); len(next) != 1 || id != uint64(closesMax+i) {
			t.Fatalf("closed %d and %d more, want %d", id, len(next)-1, closesMax+i)
		}
	}
}

// TestFailedClosesComeAgain: closes that failed are submitted again when none is outstanding, at most once in closeAgainMin.
func TestFailedClosesComeAgain(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	group.Lead(true, 1)
	client := newTestClient(t, group, nil)
	for id := range uint64(closesMax + 1) {
		client.closeReceiver(id)
	}
	now := time.Now()
	for round := range 2 {
		group.Await(t, closesMax, 0)
		for _, s := range group.Take() {
			client.tick(now.Add(2 * closeAgainMin)) // adds nothing while one is outstanding
			s.Done(done(fsm.ServerBusy))
		}
		if early := group.Take(); len(early) > 0 {
			t.Fatalf("round %d: %d closes came at once", round, len(early))
		}
		now = now.Add(2 * closeAgainMin)
		client.tick(now)
	}
	group.Await(t, closesMax, 0)
	client.tick(now.Add(closeAgainMin - 1))
	if n := len(group.Take()); n != closesMax {
		t.Errorf("%d closes came again, want %d", n, closesMax)
	}
}
