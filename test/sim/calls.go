package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simplan"
	"github.com/peeklock/peeklock/topology"
)

const (
	shortageLength = 20 * time.Second
	stackDepthMax  = 64
	// repairAfter is when an operator looks at the member after a call has failed, and restarts it if that is needed.
	repairAfter   = 25 * time.Second
	compareWithin = 5 * time.Second
)

// matrixStreams are the streams that have clients: a fraction of the usual ones, because there are thousands of simulations.
var matrixStreams = []string{"queue-0", "queue-1", "duplicates", "sessions", "topic", "relay"} //nolint:gochecknoglobals // read only

// classes lists the classes of each call, those that find most first.
var classes = map[string][]simplan.Class{ //nolint:gochecknoglobals // read only
	simfs.CallOpen:       {simplan.IOError, simplan.NoFiles, simplan.Hang5, simplan.LastingShortage, simplan.Hang1},
	simfs.CallCreate:     {simplan.NoSpace, simplan.IOError, simplan.LastingShortage, simplan.NoFiles, simplan.Hang5, simplan.NoQuota, simplan.Hang1},
	simfs.CallList:       {simplan.IOError, simplan.NoFiles, simplan.Hang5, simplan.Hang1},
	simfs.CallStat:       {simplan.IOError, simplan.Hang5, simplan.Hang1},
	simfs.CallMkdir:      {simplan.NoSpace, simplan.IOError, simplan.NoQuota, simplan.LastingShortage, simplan.Hang5, simplan.Hang1},
	simfs.CallRename:     {simplan.NoSpace, simplan.IOError, simplan.NoQuota, simplan.LastingShortage, simplan.Hang5, simplan.Hang1},
	simfs.CallRemove:     {simplan.IOError, simplan.Hang5, simplan.Hang1},
	simfs.CallSyncFolder: {simplan.IOError, simplan.NoFiles, simplan.NoSpace, simplan.Hang5, simplan.Hang1},
	simfs.CallRead:       {simplan.IOError, simplan.Hang5, simplan.Hang1},
	simfs.CallWrite:      {simplan.NoSpace, simplan.ShortWrite, simplan.IOError, simplan.LastingShortage, simplan.NoQuota, simplan.Hang5, simplan.Hang1},
	simfs.CallTruncate:   {simplan.IOError, simplan.Hang5, simplan.Hang1},
	simfs.CallSync:       {simplan.IOError, simplan.NoSpace, simplan.NoQuota, simplan.Hang5, simplan.Hang1},
	simfs.CallClose:      {simplan.IOError, simplan.Hang5, simplan.Hang1},
	simfs.CallLogOpen:    {simplan.IOError, simplan.NoFiles, simplan.NoSpace, simplan.Hang5, simplan.Hang1},
	simfs.CallLogRead:    {simplan.IOError, simplan.Hang5, simplan.Hang1},
	simfs.CallLogStore:   {simplan.NoSpace, simplan.IOError, simplan.LastingShortage, simplan.Hang5, simplan.NoQuota, simplan.Hang1},
	simfs.CallLogDelete:  {simplan.NoSpace, simplan.IOError, simplan.LastingShortage, simplan.Hang5, simplan.NoQuota, simplan.Hang1},
	simfs.CallLogSet:     {simplan.NoSpace, simplan.IOError, simplan.LastingShortage, simplan.Hang5, simplan.NoQuota, simplan.Hang1},
	simfs.CallLogGet:     {simplan.IOError, simplan.Hang5, simplan.Hang1},
}

// failureOf is what happens to a call.
func failureOf(c simplan.Class, call, path string) simfs.Failure {
	var number syscall.Errno
	switch c {
	case simplan.Hang1:
		return simfs.Failure{Hang: time.Second}
	case simplan.Hang5:
		return simfs.Failure{Hang: 5 * time.Second}
	case simplan.NoSpace, simplan.ShortWrite:
		number = syscall.ENOSPC
	case simplan.NoQuota:
		number = syscall.EDQUOT
	case simplan.NoFiles:
		number = syscall.EMFILE
	case simplan.IOError:
		number = syscall.EIO
	case simplan.LastingShortage:
		number = syscall.ENOSPC
		if call == simfs.CallOpen {
			number = syscall.EMFILE
		}
	}
	return simfs.Failure{Err: simfs.PathError(call, path, number), Short: c == simplan.ShortWrite}
}

// Call is one call of a simulation.
type Call struct {
	At     time.Duration // after the first one
	Member int
	Name   string // see package simfs
	Path   string // without numbers, below the data folder
	Stack  uint64 // checksum of the callers with their lines
	Number int    // among the calls with this stack
	// Pair is the stack together with that of the last change that the same goroutine made.
	Pair uint64
}

// calls counts the calls of all members, and makes one of them fail.
type calls struct {
	world  *world
	fail   simplan.FailedCall
	faults []simplan.Fault // of the plan

	mu     sync.Mutex
	active bool
	begun  time.Time
	made   []Call
	stacks map[uint64]string
	known  map[uint64]uint64 // the stacks by their program counters
	counts map[uint64]int    // by stack
	last   map[uint64]uint64 // by goroutine: the stack of its last change
	failed *Call
	until  time.Time
	note   string // what became of the member
}

func newCalls(w *world, plan *simplan.Plan) *calls {
	return &calls{world: w, fail: *plan.Call, faults: plan.Faults, stacks: make(map[uint64]string), known: make(map[uint64]uint64), counts: make(map[uint64]int), last: make(map[uint64]uint64)}
}

// start begins to count.
func (c *calls) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active, c.begun = true, time.Now()
}

func (c *calls) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = false
}

// intercept counts the calls of one member.
func (c *calls) intercept(m *member) func(call, path string) simfs.Failure {
	return func(call, path string) simfs.Failure {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.active {
			return simfs.Failure{}
		}
		var frames [stackDepthMax]uintptr
		n := runtime.Callers(3, frames[:])
		stack := c.stackOf(call, frames[:n])
		c.counts[stack]++
		made := Call{At: time.Since(c.begun), Member: m.number, Name: call, Path: placeOf(path), Stack: stack, Number: c.counts[stack]}
		by := bubbleState[7]
		made.Pair = made.Stack*31 + c.last[by]
		if !isRead(call) {
			c.last[by] = made.Stack
		}
		c.made = append(c.made, made)
		switch {
		case stack == c.fail.Stack && made.Number == c.fail.Number:
			c.failed, c.until = &made, time.Now().Add(shortageLength)
			c.world.log.Info("call fails", "member", m.name, "call", call, "path", path, "class", c.fail.Class)
			c.world.repairs.Go(func() { c.repair(m) })
			return failureOf(c.fail.Class, call, path)
		case c.fail.Class == simplan.LastingShortage && c.failed != nil && m.number == c.failed.Member &&
			stack == c.failed.Stack && time.Now().Before(c.until):
			return failureOf(c.fail.Class, call, path)
		}
		return simfs.Failure{}
	}
}

// isRead reports whether a call changes nothing.
func isRead(call string) bool {
	switch call {
	case simfs.CallOpen, simfs.CallList, simfs.CallStat, simfs.CallRead, simfs.CallClose, simfs.CallLogOpen, simfs.CallLogRead, simfs.CallLogGet:
		return true
	}
	return false
}

// repair restarts the member of the failed call as an operator does, if its process needs that.
func (c *calls) repair(m *member) {
	before := m.running()
	sleep(repairAfter)
	p := m.running()
	if p == nil || p != before {
		return // the plan has ended the process
	}
	reason := p.fault()
	if reason == "" {
		c.compare()
		return
	}
	c.addNote(restarted + reason)
	m.kill(false)
	m.ensureRunning()
}

// compare reports replicas that do not follow although nothing disturbs them any more.
func (c *calls) compare() {
	ctx, cancel := context.WithTimeout(context.Background(), compareWithin)
	defer cancel()
	at := time.Since(c.begun)
	if at < 0 || slices.ContainsFunc(c.faults, func(f simplan.Fault) bool { return f.At < at+compareWithin && f.At+f.Length+repairAfter/2 > at }) {
		return
	}
	for id := range c.world.partitions + 1 {
		for {
			var v topology.Verification
			err := errNoMember
			if p := c.world.anyOther(nil); p != nil {
				v, err = p.Node.Operator().Verify(ctx, fsm.PartitionID(id))
			}
			if err == nil && v.Equal {
				break
			}
			if ctx.Err() != nil {
				c.world.find("%v after the call failed, the replicas of partition %d differ: %+v: %v", repairAfter, id, v, err)
				return
			}
			sleep(time.Second)
		}
	}
}

var errNoMember = errors.New("no member runs")

// fault returns why the process needs a restart, "" if it does not.
func (p *process) fault() string {
	for _, check := range slices.Concat(p.Node.Liveness(), p.Node.Readiness()) {
		if !check.OK || strings.Contains(check.Text, "stopped for good") {
			return check.Name + ": " + check.Text
		}
	}
	return ""
}

// The beginnings of notes.
const (
	restarted    = "restarted: "     // the member did not end by itself
	refusedStart = "did not start: " // and was started again
)

func (c *calls) addNote(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.note == "" {
		c.note = text
	}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// placeOf is a path below the data folder, without numbers.
func placeOf(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, dataFolder), "/")
	return numbers.ReplaceAllString(filepath.ToSlash(path), "N")
}

// stackOf returns the checksum of a stack.
func (c *calls) stackOf(call string, frames []uintptr) uint64 {
	counters := uint64(14695981039346656037) // FNV-1a
	for _, pc := range frames {
		counters = (counters ^ uint64(pc)) * 1099511628211
	}
	stack, known := c.known[counters]
	if !known {
		text := stackText(frames)
		h := fnv.New64a()
		_, _ = io.WriteString(h, call+"\n"+text)
		stack = h.Sum64()
		c.known[counters], c.stacks[stack] = stack, text
	}
	return stack
}

// stackText lists the functions of a stack, from the call outwards.
func stackText(frames []uintptr) string {
	var s strings.Builder
	for more, of := true, runtime.CallersFrames(frames); more; {
		var f runtime.Frame
		f, more = of.Next()
		fmt.Fprintf(&s, "%s:%d\n", strings.TrimPrefix(f.Function, "github.com/peeklock/peeklock/"), f.Line)
	}
	return s.String()
}

// Outcome is what became of a simulation in which a call failed.
type Outcome struct {
	Reached      bool // there were so many calls
	Call         Call
	Text         string // the stack of the call
	MustContinue bool   // the failure may end no process, and may not stop sends for long
	Note         string // why the member was restarted, "" if it was not
	Findings     []string
	Gaps         []float64 // see gaps
	Calls        int       // that were counted
}

// outcome judges a simulation.
func (c *calls) outcome(report *Report) Outcome {
	o := Outcome{Note: c.note, Findings: report.Findings, Calls: len(c.made), Gaps: gaps(report.streams, c.begun, report.Plan.Length)}
	if c.failed != nil {
		o.Reached, o.Call, o.Text = true, *c.failed, c.stacks[c.failed.Stack]
	}
	// After a failed sync the content of the disk is unknown, whatever the error. Bytes that cannot be read are damage, which heals.
	o.MustContinue = c.fail.Class != simplan.IOError || isRead(o.Call.Name) && o.Call.Name != simfs.CallClose
	if c.fail.Class != simplan.Hang1 && c.fail.Class != simplan.Hang5 && (o.Call.Name == simfs.CallSync || o.Call.Name == simfs.CallSyncFolder) {
		o.MustContinue = false
	}
	if strings.HasPrefix(o.Note, restarted) && o.MustContinue {
		o.Findings = append(o.Findings, "the member needed a restart: "+o.Note)
	}
	if strings.HasPrefix(o.Note, refusedStart) && c.fail.Class == simplan.IOError && o.Call.Name == simfs.CallRead {
		o.Findings = append(o.Findings, "bytes that cannot be read kept the member from starting: "+o.Note)
	}
	return o
}

// gaps returns for each second until the senders end the longest time, in seconds, for which a stream that includes it has accepted no
// message.
func gaps(streams []*judge.Stream, begun time.Time, length time.Duration) []float64 {
	longest := make([]float64, int(length.Seconds()))
	for _, s := range streams {
		last := time.Duration(0)
		note := func(at time.Duration) {
			for second := int(last.Seconds()); second < min(int(at.Seconds())+1, len(longest)); second++ {
				longest[second] = max(longest[second], (at - last).Seconds())
			}
			last = at
		}
		for _, e := range s.Events() {
			if at := e.At.Sub(begun); e.Kind == history.SendAccepted && at >= 0 && at < length {
				note(at)
			}
		}
		note(length)
	}
	return longest
}
