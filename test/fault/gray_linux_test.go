package fault

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	volumeBytes  = 512 << 20
	reserveBytes = 64 << 20 // the smallest one
	grayFor      = 8 * time.Second
	grayPause    = 2 * time.Second // that sends may pause on an idle machine; ten times as long elsewhere
)

// TestGrayFailures: three members with a volume each. The volume of the leader hangs, or is full, or its process is stopped or gets no file
// descriptors, and clients at the others go on.
func TestGrayFailures(t *testing.T) { //nolint:tparallel // one fault after the other on one cluster
	kit.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	var volumes [3]string
	for i := range volumes {
		volumes[i] = kit.LoopDisk(t, volumeBytes)
	}
	c := harness.Start(t, harness.Options{
		Data: func(i int) string { return filepath.Join(volumes[i], "data") },
		Args: []string{"--disk-reserve", strconv.Itoa(reserveBytes)},
	})
	c.CreateQueue(t, queue, harness.Settings{LockDuration: time.Minute})
	for _, fault := range []grayFault{
		{"volume hangs", freeze},
		{"volume is full", fill},
		{"process is stopped", func(t *testing.T, m *harness.Member) (end func()) {
			t.Helper()
			m.Pause()
			return m.Resume
		}},
		{"no file descriptors", limitFiles},
	} {
		t.Run(fault.name, func(t *testing.T) { fault.run(t, c) })
	}
}

// grayFault is a fault of a member that goes on otherwise.
type grayFault struct {
	name  string
	begin func(t *testing.T, m *harness.Member) (end func())
}

func (f *grayFault) run(t *testing.T, c *harness.Cluster) {
	t.Helper()
	c.WaitLed(t)
	leader := c.Leader(t, queue)
	others := c.Others(leader)
	l := newLoad(t, queue)
	l.send(senders, others[0], others[1])
	l.receive(receivers, others[0])
	l.receive(receivers, others[1])
	l.waitConfirmed(phase, "load before the fault")
	l.takeLongestPause()
	end := f.begin(t, leader)
	begun := time.Now()
	l.waitConfirmed(phase, "load with the fault")
	<-time.After(time.Until(begun.Add(grayFor)))
	end()
	pause := l.takeLongestPause()
	t.Logf("%s: sends paused for %v", f.name, pause.Round(time.Millisecond))
	if pause > 10*grayPause {
		t.Errorf("sends paused for %v, want at most %v on an idle machine and %v on any", pause, grayPause, 10*grayPause)
	}
	l.waitConfirmed(phase, "load after the fault")
	waitCaughtUp(t, leader, others[0])
	if n := l.errors.Load(); n != 0 {
		t.Errorf("clients at the other members saw %d errors, only a pause is allowed", n)
	}
	l.finish(c)
}

// freeze lets every write to the volume of a member wait.
func freeze(t *testing.T, m *harness.Member) (end func()) {
	t.Helper()
	volume := filepath.Dir(m.Data)
	if out, err := exec.CommandContext(t.Context(), "fsfreeze", "--freeze", volume).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be frozen here: %v: %s", err, out)
	}
	isFrozen := true
	thaw := func() {
		if !isFrozen {
			return
		}
		isFrozen = false
		if out, err := exec.Command("fsfreeze", "--unfreeze", volume).CombinedOutput(); err != nil {
			t.Errorf("unfreeze: %v: %s", err, out)
		}
	}
	t.Cleanup(thaw) // a process that waits for the volume cannot be killed
	return thaw
}

// fill takes all free space of the volume of a member.
func fill(t *testing.T, m *harness.Member) (end func()) {
	t.Helper()
	return kit.FillDisk(t, filepath.Dir(m.Data))
}

// limitFiles lets a process open no more files than it has.
func limitFiles(t *testing.T, m *harness.Member) (end func()) {
	t.Helper()
	limit := func(soft string) {
		t.Helper()
		out, err := exec.Command("prlimit", "--pid", strconv.Itoa(m.PID()), "--nofile="+soft+":").CombinedOutput()
		if err != nil {
			t.Skipf("a limit of open files cannot be set here: %v: %s", err, out)
		}
	}
	out, err := exec.CommandContext(t.Context(), "prlimit", "--pid", strconv.Itoa(m.PID()), "--nofile", "--noheadings", "--raw", "--output", "SOFT").Output()
	if err != nil {
		t.Skipf("prlimit: %v", err)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.PID()))
	if err != nil {
		t.Skip(err)
	}
	limit(strconv.Itoa(len(open)))
	return func() { limit(strings.TrimSpace(string(out))) }
}
