package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// stuckAfter is how long virtual time may stand still, in real time.
const stuckAfter = time.Minute

// watchdog ends the process when virtual time stands still: some goroutine waits for a mutex whose owner waits for
// time to pass, or runs forever. It is started outside of the bubble, and pet is called from inside.
type watchdog struct {
	pets atomic.Int64
	stop chan struct{}
}

func startWatchdog(seed uint64) *watchdog {
	w := &watchdog{stop: make(chan struct{})}
	go w.watch(seed)
	return w
}

func (w *watchdog) watch(seed uint64) {
	ticker := time.NewTicker(stuckAfter)
	defer ticker.Stop()
	for last := int64(-1); ; {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		if now := w.pets.Load(); now != last {
			last = now
			continue
		}
		all := make([]byte, 64<<20)
		all = all[:runtime.Stack(all, true)]
		path := filepath.Join(os.TempDir(), fmt.Sprintf("peeklock-sim-%d-stacks.txt", seed))
		_ = os.WriteFile(path, all, 0o600)
		var awake []string
		for stack := range strings.SplitSeq(string(all), "\n\n") {
			if head, _, _ := strings.Cut(stack, "\n"); !strings.Contains(head, "durable") {
				awake = append(awake, stack)
			}
		}
		panic(fmt.Sprintf("seed %d: time stands still; all goroutines: %s; those that are not durably blocked:\n%s", seed, path, strings.Join(awake, "\n\n")))
	}
}

// run pets the watchdog until the bubble's f returns.
func (w *watchdog) run(f func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				w.pets.Add(1)
			case <-done:
				return
			}
		}
	}()
	f()
	close(done)
}
