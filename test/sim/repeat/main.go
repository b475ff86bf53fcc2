package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/peeklock/peeklock/test/overlay"
	"github.com/peeklock/peeklock/test/planted/faults"
)

//go:embed runtime.go.txt
var added []byte

// patches lists what depends on chance, on time, or on other goroutines of the process.
func patches() []overlay.Patch {
	return []overlay.Patch{
		// Every process begins with the same random numbers: they are the seeds of hashes and the first address of the heap.
		{"rand.go", "globalRand.state.Init(*seed)", "*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)"},
		// The goroutines of a bubble draw from numbers of their own: those of a thread depend on which goroutines it ran.
		{"rand.go", "\tmp := getg().m\n\tc := &mp.chacha8", "\tif b := getg().bubble; b != nil && simulating {\n\t\treturn b.rand()\n\t}\n\tmp := getg().m\n\tc := &mp.chacha8"},
		{"select.go", "cheaprandn(uint32(norder + 1))", "simulationRandn(uint32(norder + 1))"},
		{"time.go", "t.rand = cheaprand()", "t.rand = simulationRand()"},
		{"synctest.go", "\tactive  int // other sources of activity", "\tactive  int // other sources of activity\n\trandom  uint64"},
		{"synctest.go", "\tbubble.now = synctestBaseTime\n", "\tbubble.now = synctestBaseTime\n\tbubble.begin()\n"},
		{"synctest.go", "\tgp.bubble = bubble\n\tdefer func() {\n", "\tgp.bubble = bubble\n\tdefer func() {\n\t\tbubble.end()\n"},
		// A mutex looks at the clock before it is handed over to who waits longest.
		{"sema.go", "func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 {\n\tif b := getg().bubble; b != nil && simulating {\n\t\treturn b.now\n\t}\n"},
		// No goroutine is interrupted because it took long, and none loses its processor in a system call. This begins with
		// the process: a thread more would move everything in memory, and hashes of pointers with it.
		{"proc.go", "func retake(now int64) uint32 {\n", "func retake(now int64) uint32 {\n\tif gomaxprocs == 1 {\n\t\treturn 0\n\t}\n"},
		// While the main goroutine keeps the first thread to itself, chance decides how many others are started.
		{"proc.go", "\tlockOSThread()\n\n\tif mp != &m0 {", "\tif mp != &m0 {"},
		{"proc.go", "needUnlock := true", "needUnlock := false"},
		{"proc.go", "\tneedUnlock = false\n\tunlockOSThread()\n", "\tneedUnlock = false\n"},
		// Time passes while goroutines wait for a mutex whose owner waits for time to pass.
		{"runtime2.go", "waitReasonSynctestSelect:        true,\n", "waitReasonSynctestSelect:        true,\n\twaitReasonSyncMutexLock: true, waitReasonSyncRWMutexRLock: true, waitReasonSyncRWMutexLock: true,\n"},
		// The queue of the processor has the goroutines of the bubble alone; the others wait in the global queue.
		{"proc.go", "\tif !haveSysmon && next {\n", "\tif simulating && gp.bubble == nil {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)\n\t\tunlock(&sched.lock)\n\t\treturn\n\t}\n\tif simulating && next && simulationDelays(gp) {\n\t\tnext = false\n\t}\n\tif !haveSysmon && next {\n"},
		{"proc.go", "\t\trunqput(pp, gp, true)\n\t} else {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)", "\t\trunqput(pp, gp, true)\n\t} else if simulating && gp.bubble != nil {\n\t\trunqput(pp, gp, false)\n\t} else {\n\t\tlock(&sched.lock)\n\t\tglobrunqput(gp)"},
		{"runtime2.go", "runq     [256]guintptr", "runq     [simulationQueue]guintptr"},
		{"proc.go", "batch *[256]guintptr", "batch *[simulationQueue]guintptr"},
		{"proc.go", "\tvar batch [len(pp.runq)/2 + 1]*g\n", "\tif simulating {\n\t\tthrow(\"too many goroutines are runnable\")\n\t}\n\tvar batch [129]*g\n"},
		{"proc.go", "\tn = n / 2\n\tif n != uint32(len(pp.runq)/2) {", "\tn = uint32(len(batch) - 1)\n\tif false {"},
		{"proc.go", "\tif !inheritTime {\n\t\tmp.p.ptr().schedtick++\n\t}\n", "\tif !inheritTime {\n\t\tmp.p.ptr().schedtick++\n\t}\n\tif gp.bubble != nil && simulating {\n\t\tgp.bubble.ran()\n\t}\n"},
		// The others run whenever so many goroutines of the bubble have, and not when they happen to be runnable.
		{"proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if simulationTick(pp)%61 == 0 && !sched.runq.empty() {"},
		// Two goroutines that wake each other share a time slice, which nothing ends now.
		{"proc.go", "\tnext := pp.runnext\n\t// If", "\tnext := pp.runnext\n\tif simulating && simulationPasses(pp) {\n\t\tnext = 0\n\t}\n\t// If"},
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: repeat FOLDER")
		os.Exit(2) //nolint:forbidigo // nothing is left to be closed
	}
	if err := write(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be closed
	}
}

// write writes the overlay and what it leads to.
func write(ctx context.Context, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the Go runtime: %w", err)
	}
	trees := []overlay.Tree{{
		Source:  filepath.Join(strings.TrimSpace(string(root)), "src", "runtime"),
		Patches: patches(),
		Added:   []overlay.File{{Name: "simulation.go", Text: string(added)}},
	}}
	if os.Getenv(faults.Variable) != "" {
		tree, err := faults.Tree()
		if err != nil {
			return err
		}
		trees = append(trees, tree)
	}
	_, err = overlay.Write(folder, trees...)
	if errors.Is(err, overlay.ErrPatch) {
		err = fmt.Errorf("this Go runtime is not that of Go 1.26 (GOTOOLCHAIN=go1.26.0 selects it): %w", err)
	}
	return err
}
