package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

// clockTick is the unit of times in /proc.
const clockTick = 10 * time.Millisecond

// processCPU returns the CPU time that a member has used. The kernel knows it; reading the member's metrics would add to it.
func processCPU(_ context.Context, m *harness.Member) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID()))
	if err != nil {
		return 0, err
	}
	// "pid (name) state ...": the name may hold anything but the last ")", and user and system time are the 14th and 15th field.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, fmt.Errorf("read CPU time of %s: %w", m.Name, err)
	}
	return time.Duration(user+system) * clockTick, nil
}
