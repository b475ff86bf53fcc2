package work

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The buckets of ended accounts are bounded, and those that are full again are forgotten when there are too many.
func TestEndedAccountsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1, 1)
		end := func(owners string, n int) {
			for i := range n {
				a := l.Open(Owner{Key: fmt.Sprint(owners, i)}, 1, 10)
				a.bucket.tokens -= 10
				a.Close()
			}
		}
		end("a", endedAccountsMax+100)
		if n := len(l.ended.buckets); n != endedAccountsMax || l.ended.count != n {
			t.Errorf("%d buckets are kept, %d counted", n, l.ended.count)
		}
		<-time.After(11 * time.Second)
		end("b", 1)
		if n := len(l.ended.buckets); n != 1 || l.ended.count != n {
			t.Errorf("%d buckets are kept, %d counted, want only the new one", n, l.ended.count)
		}
	})
}
