package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	tick = 10 * time.Millisecond // of the CPU times in /proc
	mib  = 1 << 20
)

// result is what one row of one product gave in one round.
type result struct {
	Product    string  `json:"product"`
	Round      int     `json:"round"`
	Row        string  `json:"row"`
	Messages   uint64  `json:"messages"`
	PerSecond  float64 `json:"perSecond"` // confirmed sends, or settled messages in rows with receivers
	P50        float64 `json:"p50Ms"`     // of sends
	P99        float64 `json:"p99Ms"`
	UserMicros float64 `json:"userMicros"` // CPU of all members, per message
	SysMicros  float64 `json:"sysMicros"`
	OwnMicros  float64 `json:"clientMicros"` // CPU of the load generator, per message
	Written    float64 `json:"writtenBytes"` // by all members to the disk, per message
	AnonMiB    float64 `json:"anonMiB"`      // resident memory of all members after the row
	MappedMiB  float64 `json:"mappedMiB"`    // resident pages of mapped files
	Repeated   uint64  `json:"repeated"`
	Load       float64 `json:"load"` // of the machine in the last minute
}

// mark is the state of the counters at one moment.
type mark struct {
	at       time.Time
	messages uint64
	own      time.Duration
	members  usage
}

// usage is what processes have used together.
type usage struct {
	user, sys    time.Duration
	written      uint64
	anon, mapped uint64 // bytes that are resident
}

func (e *engine) mark() (m mark, err error) {
	m.at = time.Now()
	for _, q := range e.queues {
		if e.row.cycle {
			m.messages += q.settled.Load() - q.repeated.Load()
		} else {
			m.messages += q.confirmed.Load()
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return m, fmt.Errorf("measure own CPU: %w", err)
	}
	m.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	for _, pid := range e.members {
		if err := m.members.add(pid); err != nil {
			return m, fmt.Errorf("measure process %d: %w", pid, err)
		}
	}
	return m, nil
}

// add adds what a process has used.
func (u *usage) add(pid int) error {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return err
	}
	// The name of the process, in parentheses, may have spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return errors.New("its statistics are too short")
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	sys, sysErr := strconv.ParseInt(fields[12], 10, 64)
	u.user += time.Duration(user) * tick
	u.sys += time.Duration(sys) * tick
	written, ioErr := field(dir+"io", "write_bytes:")
	anon, anonErr := field(dir+"status", "RssAnon:")
	mapped, mappedErr := field(dir+"status", "RssFile:")
	u.written += written
	u.anon += anon << 10
	u.mapped += mapped << 10
	return errors.Join(userErr, sysErr, ioErr, anonErr, mappedErr)
}

// field returns the number behind a name in a file of /proc.
func field(path, name string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			return strconv.ParseUint(words[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no field %s", path, name)
}

func (e *engine) result(first, last mark) (result, error) {
	n := last.messages - first.messages
	if n == 0 {
		return result{}, errors.New("no message was counted")
	}
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	r := result{
		Messages: n, PerSecond: float64(n) / last.at.Sub(first.at).Seconds(),
		UserMicros: per(last.members.user - first.members.user), SysMicros: per(last.members.sys - first.members.sys), OwnMicros: per(last.own - first.own),
		Written: float64(last.members.written-first.members.written) / float64(n),
		AnonMiB: float64(last.members.anon) / mib, MappedMiB: float64(last.members.mapped) / mib,
	}
	var all []time.Duration
	for _, q := range e.queues {
		all = append(all, q.latencies...)
		r.Repeated += q.repeated.Load()
	}
	slices.Sort(all)
	r.P50, r.P99 = percentile(all, 50), percentile(all, 99)
	var err error
	r.Load, err = loadAverage()
	return r, err
}

// percentile returns a percentile of sorted durations in milliseconds.
func percentile(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[(len(sorted)-1)*percent/100].Microseconds()) / 1000
}

func loadAverage() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}
