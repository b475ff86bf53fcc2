package objects

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// Limits of a rate.
const (
	// RateBytesMin is the lowest rate, in bytes per second. A member that sends a copy waits a minute for each
	// piece of 256 KiB to be read.
	RateBytesMin = 64 << 10
	// A burst is the bytes of a second divided by burstsPerSecond. Bursts compensate for timers, which are late by
	// milliseconds.
	burstsPerSecond = 10
)

// RateLimit limits copying to a number of bytes per second, over all objects together. A nil RateLimit limits
// nothing.
type RateLimit struct{ limiter *rate.Limiter }

// NewRateLimit returns a rate limit of RateBytesMin or more.
func NewRateLimit(bytesPerSecond int64) *RateLimit {
	return &RateLimit{rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(RateBytesMin, bytesPerSecond/burstsPerSecond)))}
}

// Writer returns a writer that discards bytes at the limited rate. Use it as the first writer of an
// io.MultiWriter, before the writer to be limited. Its writes end with ctx.
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
