package kit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// InBubble runs a test of Raft groups in virtual time. Raft does not answer all requests that are pending at its
// shutdown (see await in package partition): goroutines that wait for such an answer remain, and synctest panics because of
// them. The TestMain of the package reports all others.
func InBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer func() {
		if failed := recover(); failed != nil && !strings.Contains(fmt.Sprint(failed), "main bubble goroutine has exited") {
			panic(failed)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		// For what ends with its own timeout. It runs after the members have stopped.
		t.Cleanup(func() { <-time.After(time.Minute) })
		test(t)
	})
}
