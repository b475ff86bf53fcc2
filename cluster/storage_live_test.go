package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Every member shows the disks of all living members, and the newest backup of each partition, whichever member it was read through.
func TestStorageOfAllMembersIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const partitions = 2
		c := newFileCluster(t, 3, partitions)
		c.startAll()
		if got := c.nodes[0].Operator().Storage(t.Context()); len(got.Members) != 3 || len(got.Backups) != 0 || len(got.Unreachable) != 0 {
			t.Fatalf("before the first backup: %+v, want three members and no backup", got)
		}
		c.backupAll(c.nodes[0], partitions)
		<-time.After(time.Minute)
		again := time.Now()
		c.backupAll(c.nodes[1], 0) // the catalog
		for i, node := range c.nodes {
			got := node.Operator().Storage(t.Context())
			var of []fsm.PartitionID
			for _, b := range got.Backups {
				of = append(of, b.Partition)
				if b.Bytes == 0 || b.At.Before(again) != (b.Partition != 0) {
					t.Errorf("member %d shows the backup %+v, want bytes, and only that of the catalog from %v on", i, b, again)
				}
			}
			if want := []fsm.PartitionID{0, 1, 2}; !slices.Equal(of, want) {
				t.Errorf("member %d shows backups of %v, want %v", i, of, want)
			}
			for _, m := range got.Members {
				if m.Name == "" || m.DiskBytes < m.FreeBytes || m.FreeBytes == 0 {
					t.Errorf("member %d shows the disk %+v, want its size", i, m)
				}
			}
		}
		// A backup that another member has of before is not shown again after the leader has moved.
		from := c.nodes[0].replicas.Group(1).Status().IsLeader
		to := c.nodes[0]
		if from {
			to = c.nodes[1]
		}
		if err := c.nodes[2].Operator().TransferLeader(t.Context(), 1, to.self); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		again = time.Now()
		c.backupAll(c.nodes[2], 1)
		for _, b := range c.nodes[2].Operator().Storage(t.Context()).Backups {
			if b.Partition == 1 && b.At.Before(again) {
				t.Errorf("partition 1 has a backup of %v, want the newest, after %v", b.At, again)
			}
		}
	})
}
