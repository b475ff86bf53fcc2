package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// backupAll backs up every partition through one member, the catalog last.
func (c *testCluster) backupAll(node *Node, partitions int) map[fsm.PartitionID][]byte {
	c.t.Helper()
	copies := make(map[fsm.PartitionID][]byte)
	for id := partitions; id >= 0; id-- {
		var b bytes.Buffer
		if err := node.operator.Backup(c.t.Context(), fsm.PartitionID(id), &b); err != nil {
			c.t.Fatal(err)
		}
		info, err := partition.CheckBackup(bytes.NewReader(b.Bytes()))
		if err != nil || info.Partition != fsm.PartitionID(id) {
			c.t.Fatalf("backup of %d: %+v %v", id, info, err)
		}
		copies[fsm.PartitionID(id)] = b.Bytes()
	}
	return copies
}

func backupOpener(copies map[fsm.PartitionID][]byte) func(fsm.PartitionID) (io.ReadCloser, error) {
	return func(id fsm.PartitionID) (io.ReadCloser, error) {
		if _, ok := copies[id]; !ok {
			return nil, errors.New("there is none")
		}
		return io.NopCloser(bytes.NewReader(copies[id])), nil
	}
}

// TestRestoredClusterServesAndOthersJoinIt backs up a running cluster through any member. The restored data serves at one member,
// and other members join it.
func TestRestoredClusterServesAndOthersJoinIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newFileCluster(t, 3, 3)
		c.startAll()
		place := createQueue(t, c.nodes[0], "orders")
		for _, text := range []string{"a", "b", "c"} {
			sendMessage(t, c.nodes[1], place, text)
		}
		copies := c.backupAll(c.nodes[0], 3)
		for i := range c.nodes {
			c.stop(i)
		}

		again := newFileCluster(t, 2, 3)
		dir := filepath.Join(t.TempDir(), "restored")
		told := 0
		if err := backup.Restore(t.Context(), backup.RestoreConfig{
			Dir: dir, Backup: backupOpener(copies), Logger: testLogger(),
			Restored: func(_ partition.BackupInfo, of int) {
				if told++; of != 4 {
					t.Error("there are", of)
				}
			},
		}); err != nil || told != 4 {
			t.Fatal(told, err)
		}
		again.configs[0].Dir = dir
		again.configs[0].Expect, again.configs[1].Expect = 1, 0
		node := again.start(0)
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		defer cancel()
		kit.OK(t, node.Ready(ctx))
		members := kit.Must(node.operator.Members(ctx))(t)
		for _, m := range members {
			if m.Removed == (m.ID == node.self) {
				t.Errorf("%+v", m)
			}
		}
		moves, err := node.operator.Moves(ctx)
		if err != nil || len(moves) != 0 {
			t.Error("something moves:", moves, err)
		}
		restored := resolve(t, node, "orders")
		if got := receive(t, node, restored); strings.Join(got, " ") != "a#1 b#2 c#3" {
			t.Fatalf("received %q", got)
		}
		sendMessage(t, node, restored, "d")

		// Another member joins and gets its share.
		again.configs[1].Timing.Rejoin = 50 * time.Millisecond
		again.startMore(1)
		var plan []topology.PlannedMove
		if err := retryUntilLed(t, func() (err error) {
			if plan, err = node.operator.PlanRebalance(ctx); err == nil {
				err = node.operator.Rebalance(ctx, plan)
			}
			return err
		}); err != nil || len(plan) == 0 {
			t.Fatal(plan, err)
		}
		kit.Eventually(t, "the new member has its share", func() bool {
			moves, err := node.operator.Moves(ctx)
			return err == nil && len(moves) == 0
		})
		for id := fsm.PartitionID(0); id <= 3; id++ {
			kit.Eventually(t, "both replicas are equal", func() bool { // a joining member gets a catalog vote after its replica
				v, err := node.operator.Verify(ctx, id)
				return err == nil && v.Equal && len(v.Replicas) == 2
			})
		}
	})
}

// TestRestoredClusterForwards restores copies of four partitions, between which messages were forwarded from
// each partition to the next: what is sent to the restored queues arrives once, and nothing stands still.
func TestRestoredClusterForwards(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const partitions = 4
		c := newFileCluster(t, 1, partitions)
		c.configs[0].Reread = readWhole
		c.startAll()
		sources, sinks := map[fsm.PartitionID]fsm.EntityRef{}, map[fsm.PartitionID]fsm.EntityRef{}
		for len(sinks) < partitions { // each is created in the partition with the fewest entities
			at := c.make(fsm.QueueEntity, fmt.Sprintf("sink-%d", len(sinks)), nil)
			sinks[at.Partition] = resolve(t, c.nodes[0], at.Name)
		}
		for len(sources) < partitions {
			at := c.make(fsm.QueueEntity, fmt.Sprintf("source-%d", len(sources)), nil)
			c.change(at, forwards(sinks[at.Partition%partitions+1].Name))
			sources[at.Partition] = at
		}
		arrived := uint64(0)
		copies := map[fsm.PartitionID][]byte{}
		for _, id := range []fsm.PartitionID{1, 2, 3, 4, 0} { // each destination but one is a batch ahead of its source
			var b bytes.Buffer
			kit.OK(t, c.nodes[0].operator.Backup(t.Context(), id, &b))
			copies[id] = b.Bytes()
			arrived++
			for id, source := range sources {
				sendMessage(t, c.nodes[0], source, fmt.Sprintf("old-%d-%d", id, arrived))
			}
			for _, sink := range sinks {
				c.counted(sink, "has everything", active(arrived))
			}
		}
		c.stop(0)

		again := newFileCluster(t, 1, partitions)
		again.configs[0].Dir, again.configs[0].Reread = filepath.Join(t.TempDir(), "restored"), readWhole
		kit.OK(t, backup.Restore(t.Context(), backup.RestoreConfig{Dir: again.configs[0].Dir, Backup: backupOpener(copies), Logger: testLogger()}))
		again.startAll()
		const sent = 7
		for id, source := range sources {
			for n := range sent {
				sendMessage(t, again.nodes[0], source, fmt.Sprintf("new-%d-%d", id, n))
			}
		}
		for id, source := range sources {
			again.counted(source, "everything is forwarded", func(c fsm.Counts) bool { return c.Transfer+c.TransferDeadLetter+c.Active == 0 })
			got := map[string]int{}
			for _, m := range again.take(sinks[id%partitions+1], 1000) {
				got[m.Payload]++
			}
			for n := range sent {
				if text := fmt.Sprintf("new-%d-%d", id, n); got[text] != 1 {
					t.Errorf("%s arrived %d times", text, got[text])
				}
			}
		}
	})
}

// foreignRefusals counts the refusals of members of another cluster that a member has logged.
type foreignRefusals struct {
	slog.Handler

	count *atomic.Int64
}

func (f foreignRefusals) Enabled(context.Context, slog.Level) bool { return true }

func (f foreignRefusals) WithAttrs(attrs []slog.Attr) slog.Handler {
	return foreignRefusals{f.Handler.WithAttrs(attrs), f.count}
}

func (f foreignRefusals) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "their_cluster" && r.Level == slog.LevelError {
			f.count.Add(1)
		}
		return true
	})
	return f.Handler.Handle(ctx, r)
}

// TestRestoredClusterRefusesFormerMembers runs a member of the cluster that was backed up and the restored
// cluster, which know the addresses of each other: they stay two clusters, also after a restart, and both
// log why.
func TestRestoredClusterRefusesFormerMembers(t *testing.T) {
	inBubble(t, restoredClusterRefusesFormerMembers)
}

func restoredClusterRefusesFormerMembers(t *testing.T) {
	const old, restored = 0, 1
	c := newFileCluster(t, 2, 1)
	var refused [2]atomic.Int64
	for i := range c.configs {
		config := &c.configs[i]
		config.Expect = 1
		config.Timing.Rejoin = 50 * time.Millisecond
		config.Logger = slog.New(foreignRefusals{testLogger().Handler(), &refused[i]})
	}
	c.start(old)
	c.ready()
	place := createQueue(t, c.nodes[old], "orders")
	sendMessage(t, c.nodes[old], place, "a")
	copies := c.backupAll(c.nodes[old], 1)
	c.configs[restored].Dir = filepath.Join(t.TempDir(), "restored")
	kit.OK(t, backup.Restore(t.Context(), backup.RestoreConfig{Dir: c.configs[restored].Dir, Backup: backupOpener(copies), Logger: testLogger()}))
	c.start(restored)
	c.ready()
	wantApart := func() {
		t.Helper()
		for i, node := range c.nodes {
			kit.Eventually(t, "the other cluster is refused", func() bool {
				if all := node.gossip.All(); len(all) != 1 {
					t.Fatalf("member %s knows %d members", node.self, len(all))
				}
				return refused[i].Load() > 0
			})
			if n := ready(t, node, resolve(t, node, "orders")); n != 1 {
				t.Errorf("%d messages", n)
			}
		}
	}
	wantApart()
	c.stop(old) // it was down for a time, and does not know of the restore
	refused[0].Store(0)
	refused[1].Store(0)
	c.start(old)
	c.ready()
	kit.Eventually(t, "the former member is refused again", func() bool { return refused[0].Load() > 0 })
	if len(c.nodes[old].gossip.All()) != 1 || len(c.nodes[restored].gossip.All()) != 1 {
		t.Error("they merged after a restart")
	}
	select {
	case <-c.nodes[old].Removed():
		t.Error("the restored cluster removed a member of the other")
	default:
	}
}

// TestRestoreOfOnePartitionLeavesTheOthersEmpty restores one partition only: its messages are there; entities of the other
// partitions exist, are empty and can be used.
func TestRestoreOfOnePartitionLeavesTheOthersEmpty(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		c := newFileCluster(t, 1, 3)
		c.startAll()
		places := map[string]fsm.EntityRef{}
		for _, name := range []string{"a", "b", "c"} { // each is created in the partition with the fewest entities
			places[name] = createQueue(t, c.nodes[0], name)
			sendMessage(t, c.nodes[0], places[name], "in "+name)
		}
		only := places["b"].Partition
		if only == places["a"].Partition || only == places["c"].Partition {
			t.Fatal("they lie together", places)
		}
		all := c.backupAll(c.nodes[0], 3)
		c.stop(0)
		config := backup.RestoreConfig{
			Dir: filepath.Join(t.TempDir(), "restored"), Logger: testLogger(), Only: []fsm.PartitionID{only},
			Backup: backupOpener(map[fsm.PartitionID][]byte{0: all[0], only: all[only]}),
		}
		kit.OK(t, backup.Restore(t.Context(), config))
		again := newFileCluster(t, 1, 3)
		again.configs[0].Dir = config.Dir
		node := again.start(0)
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		defer cancel()
		kit.OK(t, node.Ready(ctx))
		if got := receive(t, node, resolve(t, node, "b")); strings.Join(got, " ") != "in b#1" {
			t.Errorf("received %q", got)
		}
		sendMessage(t, node, resolve(t, node, "a"), "new")
		if got := receive(t, node, resolve(t, node, "a")); strings.Join(got, " ") != "new#1" {
			t.Errorf("received %q", got)
		}

		config.Dir, config.Only = filepath.Join(t.TempDir(), "other"), []fsm.PartitionID{7}
		if err := backup.Restore(t.Context(), config); err == nil || !strings.Contains(err.Error(), "has no partition 7") {
			t.Error(err)
		}
	})
}

// TestRestoreRefusesIncompleteOrWrongCopies checks that copies that are incomplete, or of something else, create no data folder.
func TestRestoreRefusesIncompleteOrWrongCopies(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		c := newFileCluster(t, 1, 1)
		c.startAll()
		copies := c.backupAll(c.nodes[0], 1)
		with := func(id fsm.PartitionID, b []byte) map[fsm.PartitionID][]byte {
			return map[fsm.PartitionID][]byte{0: copies[0], 1: copies[1], id: b}
		}
		damaged := bytes.Clone(copies[1])
		damaged[len(damaged)-1] ^= 1
		for name, copies := range map[string]map[fsm.PartitionID][]byte{
			"cut short":      with(1, copies[1][:len(copies[1])-20]),
			"catalog twice":  with(1, copies[0]),
			"no catalog":     with(0, copies[1]),
			"one is missing": {0: copies[0]},
			"damaged":        with(1, damaged),
		} {
			dir := filepath.Join(t.TempDir(), "restored")
			if err := backup.Restore(t.Context(), backup.RestoreConfig{Dir: dir, Backup: backupOpener(copies), Logger: testLogger()}); err == nil {
				t.Errorf("%s: restored", name)
			}
			config := c.configs[0]
			config.Dir = dir
			if node, err := Open(t.Context(), config); err == nil {
				t.Errorf("%s: what is left can be started", name)
				_ = node.Close(t.Context())
			}
			if err := backup.Restore(t.Context(), backup.RestoreConfig{Dir: dir, Backup: backupOpener(copies), Logger: testLogger()}); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("%s: restored over it: %v", name, err)
			}
		}
	})
}

// TestBackupsAreLimitedAndEndWithTheirReader checks that backups beyond the limit are refused before anything is written, and that a
// backup ends when its reader stops reading.
func TestBackupsAreLimitedAndEndWithTheirReader(t *testing.T) {
	inBubble(t, backupsAreLimitedAndEndWithTheirReader)
}

func backupsAreLimitedAndEndWithTheirReader(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	node := c.nodes[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for range backup.RunningMax {
		from, end, err := node.openBackup(ctx, node.self, 1)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			<-ctx.Done() // does not read meanwhile
			_, _ = io.Copy(io.Discard, from)
			end()
		})
	}
	var b bytes.Buffer
	if err := node.operator.Backup(t.Context(), 1, &b); !errors.Is(err, fsm.ServerBusy) || b.Len() > 0 {
		t.Error(b.Len(), err)
	}
	if err := node.operator.Backup(t.Context(), 2, &b); !errors.Is(err, fsm.EntityNotFound) || b.Len() > 0 {
		t.Error(b.Len(), err)
	}
	cancel()
	running.Wait()
	kit.Eventually(t, "no backup is running", func() bool { return node.backups.Running() == 0 })
	if err := node.operator.Backup(t.Context(), 1, &b); err != nil {
		t.Error(err)
	}
}

// TestVerifyReportsAMemberThatDoesNotAnswer checks that Verify soon reports a member that is away as one that did not
// answer.
func TestVerifyReportsAMemberThatDoesNotAnswer(t *testing.T) {
	inBubble(t, verifyReportsAMemberThatDoesNotAnswer)
}

func verifyReportsAMemberThatDoesNotAnswer(t *testing.T) {
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	for i := range c.nodes {
		kit.Eventually(t, "all three answer, and are equal", func() bool {
			v, err := c.nodes[i].operator.Verify(t.Context(), 1)
			return err == nil && v.Equal && len(v.Replicas) == 3
		})
	}
	if err := retryUntilLed(t, func() error { return second(c.nodes[0].operator.Verify(t.Context(), 2)) }); !errors.Is(err, fsm.EntityNotFound) {
		t.Error(err)
	}
	gone := c.nodes[2].self
	c.stop(2)
	kit.Eventually(t, "the others verify without it", func() bool {
		v, err := c.nodes[0].operator.Verify(t.Context(), 1)
		if err != nil {
			return false
		}
		failed := 0
		for _, r := range v.Replicas {
			if r.Error != "" && r.Member == gone {
				failed++
			}
		}
		return failed == 1 && !v.Equal
	})
}
