package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

const (
	quotaPeriodMicros = 10_000 // short, so that a member that has used its share is not silent for long
	cgroupV1          = "/sys/fs/cgroup/cpu"
	cgroupV2          = "/sys/fs/cgroup"
)

// shares are cgroups that give each process a share of one processor.
type shares struct{ dirs []string }

// newShares removes the cgroups at the end of the benchmark, after the clusters that start later have ended.
func newShares(b *testing.B) *shares {
	var s shares
	b.Cleanup(func() {
		for _, dir := range s.dirs {
			_ = os.Remove(dir)
		}
	})
	return &s
}

// limit skips the benchmark where it is not possible.
func (s *shares) limit(b *testing.B, pid int, share float64) {
	b.Helper()
	quota := strconv.Itoa(int(share * quotaPeriodMicros))
	name := "peeklock-bench-" + strconv.Itoa(pid)
	dir, files := filepath.Join(cgroupV2, name), map[string]string{"cpu.max": quota + " " + strconv.Itoa(quotaPeriodMicros)}
	if _, err := os.Stat(cgroupV1 + "/cpu.cfs_quota_us"); err == nil {
		dir = filepath.Join(cgroupV1, name)
		files = map[string]string{"cpu.cfs_period_us": strconv.Itoa(quotaPeriodMicros), "cpu.cfs_quota_us": quota}
	}
	err := os.Mkdir(dir, 0o755)
	s.dirs = append(s.dirs, dir)
	for file, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600)); err != nil {
		b.Skipf("shares of a processor need root and a cgroup: %v", err)
	}
}
