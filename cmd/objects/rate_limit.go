package objects

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// The limits of a pace.
const (
	// PaceBytesMin is the slowest pace, in bytes a second. A member that sends a copy waits a
	// minute for each piece of 256 KiB to be taken.
	RateBytesMin = 64 << 10
	// paceBurstParts of a second may go at once: timers are late by milliseconds, and
	// what they lose has to be made up for.
	burstsPerSecond = 10
)

// RateLimit holds up what is copied so that it is no faster than so many bytes a second, all
// objects together. nil holds up nothing.
type RateLimit struct{ limiter *rate.Limiter }

// NewRateLimit makes a pace, of PaceBytesMin or more.
func NewRateLimit(bytesPerSecond int64) *RateLimit {
	return &RateLimit{rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(RateBytesMin, bytesPerSecond/burstsPerSecond)))}
}

// Writer takes bytes at that pace, and forgets them. It is put beside, and before, the writer
// that is to be held up. Its writes end with ctx.
func (p *RateLimit) Writer(ctx context.Context) io.Writer {
	if p == nil {
		return io.Discard
	}
	return rateLimitedWriter{ctx, p.limiter}
}

type rateLimitedWriter struct {
	ctx     context.Context //nolint:containedctx // it lives as long as the copying
	limiter *rate.Limiter
}

func (p rateLimitedWriter) Write(b []byte) (int, error) {
	for left := len(b); left > 0; {
		n := min(left, p.limiter.Burst())
		if err := p.limiter.WaitN(p.ctx, n); err != nil {
			return len(b) - left, err
		}
		left -= n
	}
	return len(b), nil
}
