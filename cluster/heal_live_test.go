package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// flipInJournal flips a bit of a text in the first entry of the journal of a member that has it.
func flipInJournal(t *testing.T, dir, text string) {
	t.Helper()
	paths := kit.Must(filepath.Glob(filepath.Join(dir, partition.JournalFolder, "*.seg")))(t)
	for _, path := range paths {
		content := kit.Must(os.ReadFile(path))(t)
		if at := bytes.Index(content, []byte(text)); at >= 0 {
			kit.FlipBit(t, path, int64(at))
			return
		}
	}
	t.Fatalf("no entry in the journal has %q", text)
}

// damagedCluster runs three members with journals and a queue with messages "message 0" to "message 19", and returns the
// partition of the queue. All members have applied all messages.
func damagedCluster(t *testing.T) (*testCluster, fsm.PartitionID) {
	t.Helper()
	c := newFileCluster(t, 3, 2)
	for i := range c.configs {
		c.configs[i].LogStore = partition.JournalLog
		c.configs[i].Sizes = partition.DefaultSizes()
		c.configs[i].Sizes.LogSegment = 8 << 10 // less than the messages take together
	}
	c.startAll()
	createQueue(t, c.nodes[0], "orders")
	queue := resolve(t, c.nodes[1], "orders")
	for i := range 20 {
		sendMessage(t, c.nodes[1], queue, fmt.Sprintf("message %d.", i))
	}
	kit.Eventually(t, "the cluster and its partitions have the newest level", func() bool {
		return c.nodes[0].FormatLevel() == fsm.FormatLevel
	})
	c.waitApplied(queue.Partition)
	c.waitApplied(fsm.CatalogPartition)
	return c, queue.Partition
}

// waitApplied waits until all members that run have applied what the leader of a partition has.
func (c *testCluster) waitApplied(id fsm.PartitionID) {
	c.t.Helper()
	kit.Eventually(c.t, fmt.Sprintf("all members have applied partition %d", id), func() bool {
		applied := c.nodes[c.leader(id)].replicas.Group(id).Status().Applied
		for _, n := range c.nodes {
			if n != nil && (n.replicas.Group(id) == nil || n.replicas.Group(id).Status().Applied < applied) {
				return false
			}
		}
		return true
	})
}

// TestDamagedReplicaComesBackUnderAnotherName: bits of an entry of one group have changed in the journal of a stopped
// member. That replica, and no other, is replaced by one under another name, which gets everything from its peers.
func TestDamagedReplicaComesBackUnderAnotherName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, id := damagedCluster(t)
		other := 3 - id // there are partitions 1 and 2
		before, untouched := c.nodes[2].replicas.Name(id), c.nodes[2].replicas.Name(other)
		c.stop(2)
		flipInJournal(t, c.configs[2].Dir, "message 7.")
		sendMessage(t, c.nodes[0], resolve(t, c.nodes[0], "orders"), "message 20.")
		c.start(2)
		kit.Eventually(t, "the replica has another name", func() bool {
			name := c.nodes[2].replicas.Name(id)
			return name != "" && name != before
		})
		c.ready()
		c.waitApplied(id)
		if name := c.nodes[2].replicas.Name(other); name != untouched {
			t.Errorf("a replica without damage was replaced: %s by %s", untouched, name)
		}
		c.checkAllThere(id, 21)
		if c.nodes[2].dataDir.HasReplica(id, raftgroup.ReplicaNumber(before)) {
			t.Error("the damaged replica is still there")
		}
		c.stop(2) // what replaced it is sound
		c.start(2)
		c.ready()
		c.checkAllThere(id, 21)
	})
}

// checkAllThere checks that the queue has as many messages, and that all members have the same replica of its partition.
func (c *testCluster) checkAllThere(id fsm.PartitionID, messages uint64) {
	c.t.Helper()
	if counts := countMessages(c.t, c.nodes[2], resolve(c.t, c.nodes[2], "orders")); counts.Active != messages {
		c.t.Errorf("%d messages were sent: %+v", messages, counts)
	}
	kit.Eventually(c.t, "three replicas are equal", func() bool {
		v, err := c.nodes[0].operator.Verify(c.t.Context(), id)
		return err == nil && len(v.Replicas) == 3 && v.Equal
	})
}

// TestDamagedCatalogComesBackUnderAnotherName is the same for a member's replica of the catalog.
func TestDamagedCatalogComesBackUnderAnotherName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, id := damagedCluster(t)
		c.stop(2)
		flipInJournal(t, c.configs[2].Dir, "orders")
		c.start(2)
		c.ready()
		if name, want := c.nodes[2].replicas.Name(fsm.CatalogPartition), raftgroup.ReplicaID(c.nodes[2].self, 2); name != want {
			t.Errorf("the replica of the catalog is %s and not %s", name, want)
		}
		c.checkAllThere(id, 20)
		kit.Eventually(t, "the new replica of the catalog votes, and the former is gone", func() bool {
			status := c.nodes[c.leader(fsm.CatalogPartition)].replicas.Group(fsm.CatalogPartition).Status()
			for _, v := range status.Voters {
				if v.Member == c.nodes[2].self && v.Replica != c.nodes[2].replicas.Name(fsm.CatalogPartition) {
					return false
				}
			}
			return len(status.Voters) == 3
		})
		c.stop(2)
		c.start(2)
		c.ready()
		createQueue(t, c.nodes[2], "later")
	})
}

// TestDamageOnAQuorumIsNotHealed: two of three members have a damaged replica. Nothing is removed: when the bits are right
// again, everything is there.
func TestDamageOnAQuorumIsNotHealed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, id := damagedCluster(t)
		names := map[int]string{}
		for _, i := range []int{1, 2} {
			names[i] = c.nodes[i].replicas.Name(id)
			c.stop(i)
			flipInJournal(t, c.configs[i].Dir, fmt.Sprintf("message %d.", 5*i))
		}
		c.start(1)
		c.start(2)
		trying, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := c.nodes[1].Ready(trying); err == nil {
			t.Error("a member is ready with a partition that has no quorum")
		}
		for _, i := range []int{1, 2} {
			c.stop(i)
			if left := kit.CountFiles(t, filepath.Join(c.configs[i].Dir, "groups"), fmt.Sprintf("%d.%d", id, raftgroup.ReplicaNumber(names[i]))); left != 1 {
				t.Errorf("the replica of member %d was removed", i)
			}
		}
		for _, i := range []int{1, 2} {
			flipInJournal(t, c.configs[i].Dir, fmt.Sprintf("lessage %d.", 5*i))
			c.start(i)
		}
		c.ready()
		c.waitApplied(id)
		c.checkAllThere(id, 20)
		for i, name := range names {
			if now := c.nodes[i].replicas.Name(id); now != name {
				t.Errorf("replica %s of member %d was replaced by %s", name, i, now)
			}
		}
	})
}

// TestLostPartOfTheJournalIsHealed: a file of the journal of a stopped member is lost, or nobody knows what a batch in it held.
// All replicas of the member come back under other names, that of the catalog too.
func TestLostPartOfTheJournalIsHealed(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, path string){
		"file": func(t *testing.T, path string) {
			t.Helper()
			kit.OK(t, os.Remove(path))
		},
		"head of a batch": func(t *testing.T, path string) { t.Helper(); kit.FlipBit(t, path, 512+40) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c, id := damagedCluster(t)
				other := 3 - id
				before := map[fsm.PartitionID]string{0: "", id: "", other: ""}
				for part := range before {
					before[part] = c.nodes[2].replicas.Name(part)
				}
				c.stop(2)
				paths, err := filepath.Glob(filepath.Join(c.configs[2].Dir, partition.JournalFolder, "*.seg"))
				if err != nil || len(paths) < 2 {
					t.Fatal(paths, err)
				}
				lose(t, paths[0])
				for range 2 { // what replaced them is sound
					c.start(2)
					kit.Eventually(t, "all replicas have other names", func() bool {
						for part, name := range before {
							if now := c.nodes[2].replicas.Name(part); now == "" || now == name {
								return false
							}
						}
						return true
					})
					c.ready()
					c.waitApplied(id)
					c.checkAllThere(id, 20)
					c.stop(2)
				}
			})
		})
	}
}

// TestDamagedVotesAreRestored: raft.db of all members, which has the terms and votes of their replicas, was damaged while they were down.
// Each member starts with what it had, so no replica needs another name, and no quorum is needed.
func TestDamagedVotesAreRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, id := damagedCluster(t)
		names := map[int]map[fsm.PartitionID]string{}
		for i, n := range c.nodes {
			names[i] = map[fsm.PartitionID]string{}
			for part := range fsm.PartitionID(3) {
				names[i][part] = n.replicas.Name(part)
			}
		}
		for i := range c.nodes {
			c.stop(i)
			path := filepath.Join(c.configs[i].Dir, "raft.db")
			content := kit.Must(os.ReadFile(path))(t)
			clear(content[2*os.Getpagesize():]) // behind the meta pages
			kit.OK(t, os.WriteFile(path, content, 0o600))
		}
		c.startAll()
		c.ready()
		c.waitApplied(id)
		c.checkAllThere(id, 20)
		for i, n := range c.nodes {
			for part, name := range names[i] {
				if now := n.replicas.Name(part); now != name {
					t.Errorf("replica %s of member %d was replaced by %s", name, i, now)
				}
			}
		}
	})
}
