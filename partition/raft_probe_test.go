package partition

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// heldStore can block writes.
type heldStore struct {
	raftlog.Store
	hold chan struct{} // while it has an element, the next write of entries waits until the element is received
}

func (s *heldStore) StoreLogs(logs []*raft.Log) error {
	s.hold <- struct{}{}
	<-s.hold
	return s.Store.StoreLogs(logs)
}

// While raft's main goroutine waits for a write, the request stays unanswered. A leader waits when too much is being written.
func TestUnansweredRaftIsMeasured(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		held := &heldStore{hold: make(chan struct{}, 1)}
		ms := newMembers(t, 1, func(c *Config) {
			if held.Store == nil {
				c.Log.WrapStore(func(inner raftlog.Store) raftlog.Store {
					held.Store = inner
					return held
				})
			}
		})
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		a := &asker{origin: 1}
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		for range 3 {
			if owed := g.UnansweredFor(); owed > time.Second {
				t.Errorf("a replica that works owes an answer for %s", owed)
			}
		}
		held.hold <- struct{}{} // writes wait from here on
		const sends = 6
		done := make(chan Answer, sends)
		for range sends {
			g.Submit(fsm.AppendCommand(nil, a.next(), send(1, make([]byte, entryBytesMax))), func(a Answer) { done <- a })
		}
		kit.Eventually(t, "an answer is owed", func() bool { return g.UnansweredFor() > 200*time.Millisecond })
		<-held.hold
		for range sends {
			await1(t, done)
		}
		kit.Eventually(t, "nothing is owed", func() bool { return g.UnansweredFor() == 0 })
	})
}

// TestUnansweredProbeKeepsNothing: raft never answers some requests that it has not read when it is shut down. The goroutine
// that waits stays; the state of the group does not, and nothing is owed.
func TestUnansweredProbeKeepsNothing(t *testing.T) {
	t.Parallel()
	never, asked, ended := make(chan error), make(chan struct{}), make(chan struct{})
	defer close(never)
	probe := new(raftProbe)
	state := func() weak.Pointer[Group] {
		g := &Group{probe: probe}
		g.probe.unansweredFor(func() raft.Future {
			g.removed.Store(true)
			close(asked)
			return neverAnswered{never}
		}, ended, nil)
		return weak.Make(g)
	}()
	<-asked
	kit.Eventually(t, "the state is collected", func() bool {
		runtime.GC()
		return state.Value() == nil
	})
	close(ended)
	kit.Eventually(t, "nothing is owed", func() bool {
		probe.mu.Lock()
		defer probe.mu.Unlock()
		return probe.askedAt.IsZero()
	})
}

// neverAnswered is a future that never completes.
type neverAnswered struct{ never chan error }

func (f neverAnswered) Error() error { return <-f.never }
