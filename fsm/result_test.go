package fsm

import "testing"

// TestLargeResultsAreEncodedInOneBuffer: a peek for a selector encodes a megabyte for each look.
func TestLargeResultsAreEncodedInOneBuffer(t *testing.T) {
	const most = 1<<64 - 1
	r := Result{Deliveries: make([]Delivery, 250)}
	for i := range r.Deliveries {
		r.Deliveries[i] = Delivery{
			Lock: LockID{Sequence: most, Epoch: 1<<32 - 1}, FailedDeliveries: 1<<32 - 1, Enqueued: -1, LockedUntil: -1, Expires: -1, Topic: most,
			Payload: make([]byte, 4<<10), Patches: make([]byte, 100),
		}
	}
	if got := testing.AllocsPerRun(10, func() { AppendResult(nil, r) }); got != 1 {
		t.Errorf("the encoding of %d deliveries allocated %v times, want 1", len(r.Deliveries), got)
	}
}
