package partition

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// A follower whose log begins behind its snapshot takes the first entry behind it from a leader that contradicts the rest of its log.
// Raft finds no entry to compare then, and the leader would send the snapshot again and again.
func TestLogBeginsBehindTheSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		a := &asker{origin: 7}
		must(t, ms[1].group(1), a.next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
		must(t, ms[1].group(1), a.next(), send(5, body(1)))
		f := ms[2]
		g := f.group(1)
		kit.Eventually(t, "the follower has caught up", func() bool { return g.applied.Load() == ms[1].group(1).applied.Load() })
		f.net.isolate(f.id, true)
		term, end, err := lastEntry(g.instance.Load().raft)
		kit.OK(t, err)
		if r := deliver(t, g, "m0", term+1, end, term, noops(term+1, end+1, end+100)); !r.Success {
			t.Fatalf("entries that no other replica has: %+v", r)
		}
		r := g.instance.Load().raft
		conf := r.ReloadableConfig()
		conf.TrailingLogs = 1
		kit.OK(t, r.ReloadConfig(conf))
		kit.OK(t, r.Snapshot().Error())
		g.snapshots.EndOwn()
		if at, of := g.snapshots.Ends(); at != end || of != term || g.Status().LogFirst != end+1 {
			t.Fatalf("the snapshot ends at %d of term %d and the log begins at %d; want %d, %d and %d", at, of, g.Status().LogFirst, end, term, end+1)
		}
		if r := deliver(t, g, "m0", term+2, end, term+1, noops(term+2, end+1, end+1)); r.Success {
			t.Error("an entry behind another term than that of the snapshot was taken")
		}
		if r := deliver(t, g, "m0", term+2, end, term, noops(term+2, end+1, end+1)); !r.Success {
			t.Errorf("the first entry behind the snapshot was refused: %+v", r)
		}
		if last := g.Status().LogLast; last != end+1 {
			t.Errorf("the log ends at %d, want %d", last, end+1)
		}
	})
}
