package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// sourceCluster is the id of the cluster that the tests back up.
const sourceCluster = "c1"

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// openRun opens a data folder, with datadir.Open or Create, and its log, as a Restore does.
func openRun(t *testing.T, path string, open func(disk.FS, string) (*datadir.Dir, error)) *restoreRun {
	t.Helper()
	dir := kit.Must(open(nil, path))(t)
	t.Cleanup(func() { _ = dir.Close() })
	raftLog := kit.Must(partition.OpenLog(partition.LogConfig{Path: dir.LogPath(), Kind: partition.JournalLog, Logger: discardLogger()}))(t)
	t.Cleanup(func() { _ = raftLog.Close() })
	return &restoreRun{config: &RestoreConfig{Logger: discardLogger()}, dir: dir, raftLog: raftLog}
}

// openGroup opens a group that has one replica, and waits until it leads.
func (r *restoreRun) openGroup(t *testing.T, id fsm.PartitionID, number uint32) *partition.Group {
	t.Helper()
	config := r.groupConfig(id, number)
	config.Timing.Heartbeat, config.Timing.Election, config.Timing.Lease = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	group := kit.Must(partition.Open(t.Context(), config))(t)
	t.Cleanup(func() { _ = group.Close(context.WithoutCancel(t.Context())) })
	kit.OK(t, awaitLeadership(t.Context(), group))
	return group
}

func mustPropose(t *testing.T, group *partition.Group, commands ...fsm.Command) {
	t.Helper()
	for _, c := range commands {
		kit.OK(t, propose(t.Context(), group, c))
	}
}

// sourceGroups opens a cluster of one member with the catalog and the partitions 1 and 2, each with one message.
func sourceGroups(t *testing.T) map[fsm.PartitionID]*partition.Group {
	t.Helper()
	r := openRun(t, filepath.Join(kit.MemoryDir(t), "source"), datadir.Create)
	self := r.self()
	placed := fsm.Partition{Replicas: []fsm.Replica{{Member: self, Number: 1}}}
	first, second := placed, placed
	first.ID, second.ID = 1, 2
	groups := make(map[fsm.PartitionID]*partition.Group)
	for id := range fsm.PartitionID(3) {
		groups[id] = r.openGroup(t, id, 1)
		if id == fsm.CatalogPartition {
			mustPropose(t, groups[id], fsm.FoundCluster{ClusterID: sourceCluster, Partitions: []fsm.Partition{first, second}},
				fsm.SetMember{Member: fsm.Member{ID: self, Name: "old"}})
			continue
		}
		mustPropose(t, groups[id],
			fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.EntitySettings{LockDuration: 30000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20}},
			fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: bytes.Repeat([]byte{byte(id)}, 10_000)}}})
	}
	return groups
}

// copies are the backups of a cluster by partition.
type copies map[fsm.PartitionID][]byte

func backUp(t *testing.T, groups map[fsm.PartitionID]*partition.Group) copies {
	t.Helper()
	c := make(copies)
	for id, group := range groups {
		var b bytes.Buffer
		kit.Must(group.Backup(t.Context(), &b))(t)
		c[id] = b.Bytes()
	}
	return c
}

// with returns the copies with another one of a partition; nil: without it.
func (c copies) with(id fsm.PartitionID, b []byte) copies {
	other := copies{}
	for i, whole := range c {
		other[i] = whole
	}
	if other[id] = b; b == nil {
		delete(other, id)
	}
	return other
}

func (c copies) open(id fsm.PartitionID) (io.ReadCloser, error) {
	if c[id] == nil {
		return nil, errors.New("no such file")
	}
	return io.NopCloser(bytes.NewReader(c[id])), nil
}
