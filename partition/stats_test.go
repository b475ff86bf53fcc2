package partition

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/lanes"
	"github.com/peeklock/peeklock/test/kit"
)

// The counters of a group match the work done, at the leader and at its followers. In real time, because work takes none in
// a bubble.
func TestStatsCountTheWork(t *testing.T) {
	t.Parallel()
	// The counters of the leader are compared with the commands given to it: it must not change.
	ms := form(t, func(c *Config) {
		patient(c)
		c.Sizes.Segment = 8 << 10
	})
	a := &asker{origin: 7}
	mustEventually(t, ms, a.next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
	m, g := leader(t, ms, 1)
	before := g.Stats()
	const sends = 20
	for range sends {
		must(t, g, a.next(), send(5, make([]byte, 1024)))
	}
	waitCaughtUp(t, ms, m)
	f := g.Stats()
	if n := f.Commands - before.Commands; n != sends {
		t.Errorf("%d commands applied, want %d", n, sends)
	}
	if f.LeadershipsGained == 0 || f.Proposals.Count-before.Proposals.Count != f.Entries-before.Entries || f.Proposals.Sum <= 0 {
		t.Errorf("led %d times, %d of %d entries measured", f.LeadershipsGained, f.Proposals.Count, f.Entries)
	}
	if s := f.Stages; s.Queued < 0 || s.Raft < 0 || s.Quorum <= 0 || s.Applied <= 0 || s.Raft+s.Quorum+s.Applied != f.Proposals.Sum {
		t.Errorf("the stages %+v are not the whole, %s", s, f.Proposals.Sum)
	}
	if f.LogBytes < sends*1024 || f.Segments < 2 || !f.SnapshotAt.IsZero() {
		t.Errorf("%d bytes of log, %d segments, a snapshot at %s", f.LogBytes, f.Segments, f.SnapshotAt)
	}
	kit.OK(t, g.Snapshot(t.Context()))
	s := g.Stats()
	if s.Snapshots != f.Snapshots+1 || s.SnapshotBytes == 0 || time.Since(s.SnapshotAt) > time.Minute || s.LogBytes >= f.LogBytes {
		t.Errorf("after a snapshot: %+v", s)
	}
	for _, other := range ms {
		if other == m {
			continue
		}
		waitCaughtUp(t, ms, other)
		if got := other.group(1).Stats(); got.Commands != s.Commands || got.Proposals.Count != 0 {
			t.Errorf("a follower applied %d commands of %d, and measured %d", got.Commands, s.Commands, got.Proposals.Count)
		}
		if l := other.log.Stats(); l.CommitTimes.Count != l.Commits || l.CommitTimes.Sum <= 0 || l.FileBytes == 0 {
			t.Errorf("log: %+v", l)
		}
	}
	// Refused commands are counted: nothing is accepted while the queue is full.
	g.proposer.mu.Lock()
	g.proposer.transferring = true // so that no entry takes it
	g.proposer.submissions.Add(1, submission{Bytes: make([]byte, lanes.BytesMax)})
	g.proposer.mu.Unlock()
	refused := make(chan Answer, 1)
	g.Submit(fsm.AppendCommand(nil, a.next(), send(5, nil)), func(x Answer) { refused <- x })
	g.proposer.mu.Lock()
	g.proposer.submissions, g.proposer.transferring = lanes.Queue[func(Answer)]{}, false
	g.proposer.mu.Unlock()
	if x := <-refused; x.Outcome != Refused || g.Stats().Refused != 1 {
		t.Errorf("refused: %+v, %d counted", x, g.Stats().Refused)
	}
}
