package router

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestActivityReportsAreLimitedAndBounded checks that reports are rate-limited per entity, and that
// the record of entities is bounded.
func TestActivityReportsAreLimitedAndBounded(t *testing.T) {
	t.Parallel()
	var touches activityLimiter
	now := time.Now()
	if !touches.due(1, now) || touches.due(1, now.Add(activityReportEvery-1)) || !touches.due(1, now.Add(activityReportEvery)) {
		t.Error("not once per interval")
	}
	for id := range fsm.EntityID(activityEntitiesMax + 10) {
		touches.due(id, now)
	}
	if n := len(touches.last); n > activityEntitiesMax {
		t.Errorf("%d are remembered", n)
	}
	client := newPartitionClient(1, 1, "m", nil, Timing{Retry: time.Minute}, testLogger())
	for i := range activityEntitiesMax + 10 {
		client.markTouched(&Receiver{at: fsm.EntityRef{Entity: fsm.Entity{ID: fsm.EntityID(i)}}}, now)
	}
	if n := len(client.takeTouched()); n != activityEntitiesMax {
		t.Errorf("%d wait for the next tick", n)
	}
}
