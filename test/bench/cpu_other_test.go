//go:build !linux

package bench

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

// processCPU returns the CPU time that a member has used.
func processCPU(ctx context.Context, m *harness.Member) (time.Duration, error) {
	seconds, err := m.MetricSum(ctx, "process_cpu_seconds_total")
	return time.Duration(seconds * float64(time.Second)), err
}
