package rpc

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// TestRefusalsAreCheap: a refusal names the leader without the whole status of the group. Receivers that a leader has no place
// for are refused by the ten thousand.
func TestRefusalsAreCheap(t *testing.T) {
	t.Parallel()
	serving := &server{writer: newFrameWriter(answerBufferBytes)}
	follower := &fakegroup.Group{}
	serving.answer(1, follower, partition.Answer{Outcome: partition.Refused})
	if got := follower.Questions(); got != 0 {
		t.Errorf("a refusal asked for the status %d times, want 0", got)
	}
}

// TestRefusalsKeepTheirCodes: a member learns from a refusal whether the leader has a full queue. Otherwise it would look for another
// leader, and hold all its requests meanwhile, as often as one of very many receivers is refused.
func TestRefusalsKeepTheirCodes(t *testing.T) {
	t.Parallel()
	for _, want := range []partition.Answer{
		{Outcome: partition.Refused},
		{Outcome: partition.Refused, Result: fsm.Result{Code: fsm.ServerBusy}},
		{Outcome: partition.Refused, Final: true, Result: fsm.Result{Code: fsm.ServerBusy}},
		{Outcome: partition.Refused, Final: true, Result: fsm.Result{Code: fsm.NamespaceFull}},
	} {
		group := &fakegroup.Group{}
		asking, _ := pair(t, fakeHost{group})
		got := make(answers, 1)
		asking.Conn("server").Lock(300, time.Second, lockCommand(fsm.Header{Incarnation: 1, Receiver: 1, Serial: 1}), got, 0)
		group.Await(t, 0, 1)
		group.Locks[0].Done(want)
		if a := got.next(t).answer; a.Outcome != want.Outcome || a.Final != want.Final || a.Result.Code != want.Result.Code {
			t.Errorf("got %+v, want %+v", a, want)
		}
	}
}
