package bench

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// cpuTime is what processes have used so far. known is false if the system does not report it (/proc exists on
// Linux only) or if a process has ended.
type cpuTime struct {
	used     time.Duration // user and system
	resident uint64        // bytes
	written  uint64        // bytes written to storage; 0 if the system does not report it
	known    bool
}

const (
	ticksPerSecond = 100 // USER_HZ: fixed in the interface of Linux, independent of the kernel's tick rate
	statUser       = 11  // index of the field in /proc/PID/stat, counted after the name (proc_pid_stat(5))
	statSystem     = 12
	statResident   = 21
)

// cpuOf returns the sum over processes; without processes it is unknown.
func cpuOf(pids ...int) cpuTime {
	total := cpuTime{known: len(pids) > 0}
	for _, pid := range pids {
		one := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
		total.used += one.used
		total.resident += one.resident
		total.written += writtenBy("/proc/" + strconv.Itoa(pid) + "/io")
		total.known = total.known && one.known
	}
	return total
}

// writtenBy returns write_bytes of /proc/PID/io: the bytes that the process caused to be written to storage.
func writtenBy(path string) uint64 {
	data, err := os.ReadFile(path) //nolint:gosec // a path under /proc
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

func cpuOfSelf() cpuTime { return readStat("/proc/self/stat") }

func readStat(path string) cpuTime {
	data, err := os.ReadFile(path) //nolint:gosec // a path under /proc
	if err != nil {
		return cpuTime{}
	}
	// The name is in parentheses and may itself contain spaces and parentheses.
	_, rest, found := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !found || len(fields) <= statResident {
		return cpuTime{}
	}
	user, err1 := strconv.ParseUint(fields[statUser], 10, 63)
	system, err2 := strconv.ParseUint(fields[statSystem], 10, 63)
	pages, err3 := strconv.ParseUint(fields[statResident], 10, 63)
	if err1 != nil || err2 != nil || err3 != nil {
		return cpuTime{}
	}
	return cpuTime{
		used:     time.Duration(user+system) * time.Second / ticksPerSecond,
		resident: pages * uint64(os.Getpagesize()),
		known:    true,
	}
}
