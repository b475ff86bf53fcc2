package rpc

import (
	"testing"

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
