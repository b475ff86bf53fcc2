package partition

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// TestProposerSleepsWhileADuePulseCannotBeProposed checks that a due deadline does not keep run busy while leadership
// is being transferred or too many entries are in flight: the end of either wakes it.
func TestProposerSleepsWhileADuePulseCannotBeProposed(t *testing.T) {
	t.Parallel()
	g := &Group{}
	new(testClock).use(&g.cfg)
	g.deadlineWall.Store(1)
	p := &g.proposer
	p.g, p.leading = g, true
	if wait := p.sleepFor(time.Now()); wait > 0 {
		t.Fatalf("sleeps %v although a pulse is due", wait)
	}
	p.transferring = true
	if wait := p.sleepFor(time.Now()); wait <= 0 {
		t.Error("does not sleep during a transfer")
	}
	p.transferring, p.inFlight = false, make([]*batch, entriesInFlight)
	for i := range p.inFlight {
		p.inFlight[i] = &batch{composedAt: time.Now(), items: make([]item, i)}
	}
	if wait := p.sleepFor(time.Now()); wait <= 0 {
		t.Error("does not sleep while as many entries as allowed are in flight")
	}
}

// gatheringProposer returns the proposer of a leader without raft.
func gatheringProposer(t *testing.T) *proposer {
	t.Helper()
	log := kit.Must(raftlog.Open(raftlog.Config{Path: filepath.Join(kit.MemoryDir(t), "raft.db")}))(t)
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	g := &Group{cfg: Config{Log: log}}
	new(testClock).use(&g.cfg)
	p := &g.proposer
	p.init(g)
	p.leading = true
	return p
}

// queueCommands submits n commands and counts their answers.
func queueCommands(p *proposer, n int, answered func(Answer)) {
	for range n {
		p.g.Submit(fsm.AppendCommand(nil, fsm.Header{}, send(1, body(1))), answered)
	}
}

// TestNextEntryGathersAsManyCommandsAsAreInFlight checks that entries are composed when nothing is in flight or as
// many commands are queued as are in flight, and that full entries wait for no more.
func TestNextEntryGathersAsManyCommandsAsAreInFlight(t *testing.T) {
	t.Parallel()
	p := gatheringProposer(t)
	for _, want := range []int{1, 1, 2, 4} {
		for n := range want {
			if b := p.compose(time.Now()); b != nil {
				t.Fatalf("an entry with %d commands although %d of %d are queued", len(b.items), n, want)
			}
			queueCommands(p, 1, func(Answer) {})
		}
		if b := p.compose(time.Now()); b == nil || len(b.items) != want {
			t.Fatalf("%d commands are queued, composed: %+v", want, b)
		}
	}
	queueCommands(p, 8, func(Answer) {})
	if b := p.compose(time.Now()); b != nil {
		t.Error("more entries in flight than allowed")
	}

	p = gatheringProposer(t)
	for range 2 { // more in flight than fits into one entry
		queueCommands(p, entryCommandsMax, func(Answer) {})
		if b := p.compose(time.Now()); b == nil || len(b.items) != entryCommandsMax {
			t.Fatalf("a full entry waits: %+v", b)
		}
	}
	p.g.Submit(fsm.AppendCommand(nil, fsm.Header{}, send(1, make([]byte, entryBytesMax))), func(Answer) {})
	if b := p.compose(time.Now()); b == nil {
		t.Error("an entry with as many bytes as allowed waits")
	}
}

// failedFuture is the future of an entry that raft has refused.
type failedFuture struct {
	raft.ApplyFuture

	err error
}

func (f failedFuture) Error() error { return f.err }

// openFuture is the future of an entry that raft never answers.
type openFuture struct {
	raft.ApplyFuture

	never chan error
}

func (f openFuture) Error() error { return <-f.never }

// TestWatchedEntryEndsWithItsInstance checks that a replica is not kept in memory by an entry that raft never answers.
func TestWatchedEntryEndsWithItsInstance(t *testing.T) {
	t.Parallel()
	p := gatheringProposer(t)
	queueCommands(p, 1, func(Answer) {})
	b := p.compose(time.Now())
	never, ended, end := make(chan error), make(chan struct{}), make(chan struct{})
	defer close(never)
	b.future = openFuture{never: never}
	go func() {
		defer close(end)
		p.watchFuture(b, ended)
	}()
	close(ended)
	select {
	case <-end:
	case <-t.Context().Done():
		t.Error("it waits for raft")
	}
}

// TestEveryEndOfAnEntryReleasesQueuedCommands checks that no command waits for more commands after the entries in flight have
// ended, in whichever way.
func TestEveryEndOfAnEntryReleasesQueuedCommands(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *proposer, b *batch){
		"applied": func(p *proposer, b *batch) {
			p.settle([]appliedEntry{{batch: b, results: make([]fsm.Result, len(b.items))}}, nil, time.Now())
		},
		"refused by raft": func(p *proposer, b *batch) {
			b.future = failedFuture{err: raft.ErrLeadershipTransferInProgress}
			p.watchFuture(b, nil)
		},
		"failed on disk": func(p *proposer, b *batch) {
			b.future = failedFuture{err: raft.ErrRaftShutdown}
			p.watchFuture(b, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gatheringProposer(t)
			queueCommands(p, 2, func(Answer) {})
			b := p.compose(time.Now())
			queueCommands(p, 1, func(Answer) {})
			select {
			case <-p.wake: // by the first two
			default:
			}
			if next := p.compose(time.Now()); next != nil {
				t.Fatalf("the third command does not wait: %+v", next)
			}
			end(p, b)
			select {
			case <-p.wake:
			default:
				t.Error("run is not woken")
			}
			if next := p.compose(time.Now()); next == nil || len(next.items) != 1 {
				t.Errorf("the third command still waits: %+v", next)
			}
		})
	}
	t.Run("leadership lost", func(t *testing.T) {
		t.Parallel()
		p := gatheringProposer(t)
		var unknown, refused int
		count := func(a Answer) {
			if a.Outcome == Unknown {
				unknown++
			} else {
				refused++
			}
		}
		queueCommands(p, 2, count)
		p.compose(time.Now())
		queueCommands(p, 1, count)
		p.endLeadership(Unknown, math.MaxUint64)
		if unknown != 2 || refused != 1 {
			t.Errorf("%d answers are Unknown and %d Refused", unknown, refused)
		}
	})
}
