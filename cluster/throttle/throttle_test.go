package throttle

import (
	"testing"
	"time"
)

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	var r Log
	now := time.Now()
	for i := range keysMax {
		if !r.Allow(string(rune('a'+i)), now) || r.Allow(string(rune('a'+i)), now) {
			t.Fatalf("key %d: want one line", i)
		}
	}
	if r.Allow("one more", now) || len(r.last) > keysMax {
		t.Error("the limit does not hold")
	}
	if !r.Allow("one more", now.Add(LogEvery)) || len(r.last) != 1 {
		t.Errorf("after a while %d keys are kept, want 1", len(r.last))
	}
}
