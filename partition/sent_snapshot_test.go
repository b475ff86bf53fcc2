package partition

import (
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/snapshots"
	"github.com/peeklock/peeklock/test/kit"
)

// stallingFiles stalls the creation of the references of a received snapshot until released.
type stallingFiles struct {
	disk.OS

	stalled  chan<- struct{}
	released <-chan struct{}
	once     *sync.Once
}

func (f stallingFiles) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if filepath.Base(path) == "refs" {
		f.once.Do(func() {
			f.stalled <- struct{}{}
			<-f.released
		})
	}
	return f.OS.OpenFile(path, flag, mode)
}

// A replica that gets a snapshot for so long that the leader takes newer ones meanwhile goes on with the log: another
// snapshot would take as long, and so on without end.
func TestReplicaGoesOnWithTheLogBehindASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, func(c *Config) { c.Sizes.Snapshot, c.Sizes.Trailing = 1<<40, 0 })
		const messages = 100 // and as many bytes of log behind the snapshot as it has itself do not come together
		for range messages {
			mustEventually(t, ms, a.next(), send(1, make([]byte, 8<<10)))
		}
		lm, _ := leader(t, ms, 1)
		away, rest := aFollower(ms, lm)
		ended := lm.group(1).Status().LogLast // the log of the replica that goes away ends here or before
		away.stop()
		newer := func() {
			for range 2 * trailingEntriesMin {
				mustEventually(t, rest, a.next(), send(1, body(1)))
			}
			compactLogs(t, rest)
		}
		newer()
		stalled, released := make(chan struct{}, 1), make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		defer release() // when the test fails meanwhile, too: stopping the replica waits for the snapshot
		away.files = stallingFiles{stalled: stalled, released: released, once: new(sync.Once)}
		for _, m := range rest {
			if first := m.group(1).Status().LogFirst; first <= ended+1 {
				t.Fatalf("the log of %s begins at %d, so a replica whose log ends at %d or before may need no snapshot", m.id, first, ended)
			}
		}
		away.start(1)
		kit.Eventually(t, "the replica receives a snapshot", func() bool {
			if err := away.group(1).Status().Halted; err != nil {
				t.Fatalf("the replica stopped and receives no snapshot: %v", err)
			}
			return len(stalled) > 0
		})
		for range 3 {
			newer()
		}
		release()
		waitCaughtUp(t, rest, away)
		sameEverywhere(t, ms)
		if serial := newestSerial(away); serial != 2 { // one counts twice: when it is received, and when raft takes it
			t.Errorf("it got several snapshots: the next one is number %d", serial)
		}
	})
}

// The log behind a snapshot is kept while it is sent and as long again, but not for more bytes than sending it again costs.
// What was kept is deleted then.
func TestLogBehindASentSnapshotIsDeletedAtLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, func(c *Config) { c.Sizes.Snapshot, c.Sizes.Trailing = 1<<40, 0 })
		write := func(n int) {
			for range n {
				must(t, g, a.next(), send(1, make([]byte, 8<<10)))
			}
		}
		snapshot := func() {
			kit.OK(t, g.Snapshot(t.Context()))
		}
		store := g.snapshots
		begin := func() (index uint64, r io.ReadCloser) {
			metas, err := store.List()
			if err != nil {
				t.Fatal(err)
			}
			_, r, err = store.Open(metas[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			kit.Must(r.Read(make([]byte, 1)))(t)
			return metas[0].Index, r
		}
		write(100)
		snapshot()
		index, r := begin()
		write(50)
		snapshot()
		if first := g.Status().LogFirst; first > index {
			t.Errorf("the log begins at %d while a snapshot up to %d is sent", first, index)
		}
		kit.OK(t, r.Close())
		now := time.Now()
		if from := store.LogKeptFrom(now); from != index {
			t.Errorf("kept from %d after the send, want %d", from, index)
		}
		if from := store.LogKeptFrom(now.Add(time.Minute + time.Second)); from != snapshots.LogKeptNone {
			t.Errorf("kept from %d for ever", from)
		}
		kit.Eventually(t, "what was kept is deleted", func() bool { return g.Status().LogFirst > index })

		index, r = begin()
		write(200)
		if from := store.LogKeptFrom(time.Now()); from != snapshots.LogKeptNone {
			t.Errorf("the log from %d on is kept, and more than the snapshot has", from)
		}
		snapshot()
		if first := g.Status().LogFirst; first <= index {
			t.Errorf("the log begins at %d", first)
		}
		kit.OK(t, r.Close())
	})
}
