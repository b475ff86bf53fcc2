package work

import "time"

// bucket is a token bucket that lends: work begins while there are tokens, and what it costs more than there are
// delays what follows. Therefore work may cost more than the burst.
type bucket struct {
	perSecond, burst float64
	tokens           float64   // units that may begin now; below 0 after work that cost more than there were
	filled           time.Time // when tokens was last computed
}

func newBucket(perSecond, burst int) bucket {
	return bucket{perSecond: float64(perSecond), burst: float64(burst), tokens: float64(burst), filled: time.Now()}
}

// refill adds the tokens of the time since it was last called.
func (b *bucket) refill() {
	now := time.Now()
	b.tokens = min(b.burst, b.tokens+now.Sub(b.filled).Seconds()*b.perSecond)
	b.filled = now
}

// isFull reports whether all of the burst may begin without delay. refill was called.
func (b *bucket) isFull() bool { return b.tokens >= b.burst }

// untilPaid returns the time until the tokens are no longer below 0; it is negative if they are above.
func (b *bucket) untilPaid() time.Duration {
	return time.Duration(-b.tokens / b.perSecond * float64(time.Second))
}
