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

// TestKeptClosesAreBoundedAndComeInBatches: of more receivers than the limit, the first are kept; the partition gets one
// batch after the other.
func TestKeptClosesAreBoundedAndComeInBatches(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{} // without a leader
	client := newTestClient(t, group, nil)
	const alreadyWaiting = outstandingMax + waitingRequestsMax
	for id := range uint64(alreadyWaiting + keptClosesMax) {
		client.closeReceiver(id, false) // beyond alreadyWaiting, refused at once and kept
	}
	now := time.Now().Add(2 * client.timing.Retry)
	client.timing.Retry = time.Hour
	client.tick(now) // gives up the first, beyond the limit
	open := func() int { return len(client.closes.receivers) + client.closes.outstanding }
	if client.mu.Lock(); open() != keptClosesMax {
		t.Errorf("%d are kept, want %d", open(), keptClosesMax)
	}
	client.mu.Unlock()
	group.Lead(true, 1)
	for next := uint64(alreadyWaiting); next < alreadyWaiting+3*closeBatchMax; {
		group.Await(t, closeBatchMax, 0)
		batch := group.Take()
		if len(batch) != closeBatchMax {
			t.Fatalf("a batch of %d", len(batch))
		}
		for _, s := range batch {
			if id := closedReceiver(t, s.Command); id != next {
				t.Fatalf("closed %d, want %d", id, next)
			}
			next++
			client.tick(now.Add(2 * closeAgainMin)) // adds nothing while one is outstanding
			s.Done(done(fsm.OK))
		}
		client.tick(now.Add(closeAgainMin - 1))
		if early := group.Take(); len(early) > 0 {
			t.Fatalf("%d too early", len(early))
		}
		now = now.Add(closeAgainMin)
		client.tick(now)
	}
}
