package cluster

import (
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

// A member takes its log over into a journal when it starts with one, and gets it back by a conversion. It keeps its place
// in the cluster and all messages.
func TestMemberConvertsItsLog(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3, 2)
	for i := range c.configs {
		c.configs[i].LogStore = partition.BoltLog
	}
	c.startAll()
	createQueue(t, c.nodes[0], "orders")
	sent := 0
	sendSome := func() {
		for range 10 {
			sendMessage(t, c.nodes[1], resolve(t, c.nodes[1], "orders"), "hello")
			sent++
		}
	}
	restart := func() {
		for i := range c.nodes {
			c.stop(i)
		}
		for i := range c.nodes {
			if _, err := (&StoppedLog{Dir: c.configs[i].Dir, Logger: slog.New(slog.DiscardHandler)}).Convert(partition.BoltLog); err != nil {
				t.Fatal(err)
			}
		}
	}
	sendSome()
	restart() // nothing to convert
	c.configs[0].LogStore, c.configs[1].LogStore = partition.JournalLog, partition.JournalLog
	c.startAll()
	sendSome()
	restart()
	c.configs[0].LogStore, c.configs[1].LogStore = partition.BoltLog, "" // the second takes its log over again
	c.startAll()
	sendSome()
	if counts := countMessages(t, c.nodes[0], resolve(t, c.nodes[0], "orders")); int(counts.Active) != sent {
		t.Errorf("%d sent: %+v", sent, counts)
	}
}

// testSegmentBytes is the size of a segment of a journal on a simulated disk, which writes all of it.
const testSegmentBytes = 64 << 10

// TestInterruptedConversionOfALogKeepsIt checks that after a loss of power at any step of a conversion the member starts
// with a journal and has its whole log; without a journal it starts with its whole log or refuses.
func TestInterruptedConversionOfALogKeepsIt(t *testing.T) {
	t.Parallel()
	for from, to := range map[partition.LogKind]partition.LogKind{partition.BoltLog: partition.JournalLog, partition.JournalLog: partition.BoltLog} {
		t.Run("to "+string(to), func(t *testing.T) {
			t.Parallel()
			for step := 0; ; step++ {
				d := simfs.New(rand.New(rand.NewPCG(1, uint64(step))))
				err := changeLog(t, d, from, func(l *partition.Log) {
					g, err := l.Group(1)
					if err != nil {
						t.Fatal(err)
					}
					if err := errors.Join(g.SetTerm(5), g.StoreLog(&raft.Log{Index: 1, Term: 5, Data: []byte("entry")})); err != nil {
						t.Fatal(err)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				files := d.Mount()
				d.CrashAfter(step)
				log := StoppedLog{Dir: "/data", FS: files, OpenLogStore: files.OpenLog, Logger: slog.New(slog.DiscardHandler), segmentBytes: testSegmentBytes}
				_, failed := log.Convert(to)
				d.CrashAfter(-1)
				d.Crash()
				if err := changeLog(t, d, partition.BoltLog, hasEntry(t)); err != nil && (!errors.Is(err, datadir.ErrOtherLog) || failed == nil && to == partition.BoltLog) {
					t.Fatalf("step %d: %v", step, err)
				}
				if err := changeLog(t, d, partition.JournalLog, hasEntry(t)); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				if failed == nil {
					return
				}
			}
		})
	}
}

// changeLog starts a member as far as its log, and stops it.
func changeLog(t *testing.T, d *simfs.Disk, kind partition.LogKind, use func(*partition.Log)) error {
	t.Helper()
	files := d.Mount()
	dir, err := datadir.Open(files, "/data")
	if err != nil {
		t.Fatal(err)
	}
	log, err := openLog(dir, partition.LogConfig{
		Path: dir.LogPath(), Kind: kind, FS: files, OpenStore: files.OpenLog, SegmentBytes: testSegmentBytes, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	use(log)
	return errors.Join(log.Close(), dir.Close())
}

// hasEntry returns a check that the log of changeLog has what was written.
func hasEntry(t *testing.T) func(*partition.Log) {
	t.Helper()
	return func(l *partition.Log) {
		g, err := l.Group(1)
		if err != nil {
			t.Fatal(err)
		}
		var e raft.Log
		if err := g.GetLog(1, &e); err != nil || string(e.Data) != "entry" {
			t.Fatalf("%+v, %v", e, err)
		}
		if term, err := g.GetUint64([]byte("CurrentTerm")); err != nil || term != 5 {
			t.Fatal(term, err)
		}
	}
}

// A folder that is no member's is left as it is.
func TestConversionNeedsADataFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := (&StoppedLog{Dir: dir}).Convert(partition.JournalLog); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
