package entities

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/fsm"
)

// TestActivityReportsAreLimitedAndBounded checks that reports are rate-limited per entity, and that
// the record of entities is bounded.
func TestActivityReportsAreLimitedAndBounded(t *testing.T) {
	t.Parallel()
	var touches activityLimiter
	now := time.Now()
	if !touches.due(1, now) || touches.due(1, now.Add(client.ActivityEvery-1)) || !touches.due(1, now.Add(client.ActivityEvery)) {
		t.Error("not once per interval")
	}
	for id := range fsm.EntityID(client.ActivityEntitiesMax + 10) {
		touches.due(id, now)
	}
	if n := len(touches.last); n > client.ActivityEntitiesMax {
		t.Errorf("%d are remembered", n)
	}
}
