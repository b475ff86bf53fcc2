package client

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestTouchedEntitiesAreBounded checks that the entities that wait for the next tick are bounded.
func TestTouchedEntitiesAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	client := newClient(1, &Config{Now: time.Now, Logger: testLogger()})
	for i := range ActivityEntitiesMax + 10 {
		client.markTouched(&Receiver{at: fsm.EntityRef{Entity: fsm.Entity{ID: fsm.EntityID(i)}}}, now)
	}
	if n := len(client.takeTouched()); n != ActivityEntitiesMax {
		t.Errorf("%d wait for the next tick", n)
	}
}
