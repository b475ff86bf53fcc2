package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// catalogNumber is the number of every replica of the catalog: a member whose disk was
// wiped has another member id, so the number need not tell them apart.
const catalogNumber = 1

// openRetry is how long a replica that could not be opened is left alone.
const openRetry = 5 * time.Second

// replicaID names a replica in raft, for ever.
func replicaID(member fsm.MemberID, number uint32) string {
	return string(member) + "." + strconv.FormatUint(uint64(number), 10)
}

// catalogLoop opens this member's replica of the catalog, finding or founding a cluster
// first if need be, and from then on the replicas that the catalog gives this member.
func (n *Node) catalogLoop(ctx context.Context) {
	founders, err := n.foundersOfCatalog(ctx)
	if err == nil {
		n.openKnown(ctx)
		voters := make([]partition.Voter, len(founders))
		for i, member := range founders {
			voters[i] = partition.Voter{Replica: replicaID(member, catalogNumber), Member: member}
		}
		err = n.openReplica(ctx, fsm.CatalogPartition, catalogNumber, voters)
	}
	if err != nil {
		if ctx.Err() == nil {
			n.fail(err)
		}
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C: // what could not be opened is tried again
			timer.Reset(openRetry)
		case <-n.applied:
		}
		n.followCatalog(ctx)
	}
}

// foundersOfCatalog says how to open the catalog: with these voters, or, for nil, as it
// is on disk or empty.
func (n *Node) foundersOfCatalog(ctx context.Context) ([]fsm.MemberID, error) {
	if !n.founder.holds {
		return n.founder.run(ctx, n.config.Timing.Bootstrap)
	}
	if n.folder.id.Founding {
		return n.folder.id.Pledge, nil // the founding was decided, perhaps not carried out
	}
	return nil, nil
}

// followCatalog does what the catalog says now.
func (n *Node) followCatalog(ctx context.Context) {
	group := (*n.groups.Load())[fsm.CatalogPartition]
	if group == nil {
		return
	}
	var cluster string
	var placed []fsm.Partition
	group.View(func(m partition.Machine) {
		cluster, placed = catalogOf(m).ClusterID(), catalogOf(m).Partitions()
	})
	if cluster == "" {
		return
	}
	if ours := n.clusterID(); ours != "" && ours != cluster {
		n.fail(fmt.Errorf("the data belongs to cluster %s and the catalog to %s", ours, cluster))
		return
	}
	if err := n.founder.settled(cluster); err != nil {
		n.log.ErrorContext(ctx, "record the cluster", "error", err)
	}
	n.gossip.setCluster(cluster)
	// Last, for who is ready knows the cluster: a member without replicas is ready now.
	if n.placed.Swap(&placed) == nil {
		n.log.InfoContext(ctx, "catalog is loaded", "cluster", cluster, "partitions", len(placed))
	}
	n.openPlaced(ctx, placed)
	n.changed.ring()
}

// openPlaced opens the replicas that the catalog gives this member and that are not
// open yet. A group that has never had a leader is formed with the voters of the record.
func (n *Node) openPlaced(ctx context.Context, placed []fsm.Partition) {
	var opening sync.WaitGroup
	places := make(chan struct{}, openAtATime)
	for i := range placed {
		part := &placed[i]
		at := slices.IndexFunc(part.Replicas, func(r fsm.Replica) bool { return r.Member == n.self })
		if at < 0 || ctx.Err() != nil || !n.lacks(ctx, part) {
			continue
		}
		var voters []partition.Voter
		if !part.Formed {
			for _, r := range part.Replicas {
				voters = append(voters, partition.Voter{Replica: replicaID(r.Member, r.Number), Member: r.Member})
			}
		}
		places <- struct{}{}
		opening.Go(func() {
			defer func() { <-places }()
			if err := n.openReplica(ctx, part.ID, part.Replicas[at].Number, voters); err != nil && ctx.Err() == nil {
				n.log.ErrorContext(ctx, "open replica", "partition", part.ID, "error", err)
			}
		})
	}
	opening.Wait()
}

// lacks says whether a replica must be opened. One that was opened before the catalog
// was known, and turns out to hold nothing of a group that was never formed, is
// closed to be opened with its voters.
func (n *Node) lacks(ctx context.Context, part *fsm.Partition) bool {
	group := (*n.groups.Load())[part.ID]
	if group == nil {
		return true
	}
	if part.Formed || len(group.Status().Voters) > 0 {
		return false
	}
	n.setGroup(part.ID, nil)
	if err := group.Close(ctx); err != nil {
		n.log.ErrorContext(ctx, "close an empty replica", "partition", part.ID, "error", err)
		return false
	}
	return true
}

// openKnown opens the replicas whose folders are there, without waiting for the
// catalog: after a restart of all members the groups then find their leaders while the
// catalog finds its own.
func (n *Node) openKnown(ctx context.Context) {
	entries, err := os.ReadDir(filepath.Join(n.config.Dir, "groups"))
	if err != nil {
		n.log.ErrorContext(ctx, "list replicas", "error", err)
		return
	}
	var opening sync.WaitGroup
	places := make(chan struct{}, openAtATime)
	for _, entry := range entries {
		id, number, ok := parseReplicaFolder(entry.Name())
		if !ok || id == fsm.CatalogPartition {
			continue
		}
		places <- struct{}{}
		opening.Go(func() {
			defer func() { <-places }()
			if err := n.openReplica(ctx, id, number, nil); err != nil && ctx.Err() == nil {
				n.log.ErrorContext(ctx, "open replica", "partition", id, "error", err)
			}
		})
	}
	opening.Wait()
}

// parseReplicaFolder reads "<partition>.<number>".
func parseReplicaFolder(name string) (id fsm.PartitionID, number uint32, ok bool) {
	first, second, found := strings.Cut(name, ".")
	a, errA := strconv.ParseUint(first, 10, 32)
	b, errB := strconv.ParseUint(second, 10, 32)
	return fsm.PartitionID(a), uint32(b), found && errA == nil && errB == nil
}

// openReplica opens one replica and makes it known.
func (n *Node) openReplica(ctx context.Context, id fsm.PartitionID, number uint32, voters []partition.Voter) error {
	path := n.folder.replicaPath(id, number)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("make replica folder: %w", err)
	}
	config := partition.Config{
		ID: id, Replica: replicaID(n.self, number), Member: n.self, Dir: path,
		Log: n.store, Machine: newMachine(id), Bootstrap: voters,
		Dial: func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (net.Conn, error) {
			return n.peers.dial(ctx, streamRaft, member, id)
		},
		Now:    n.config.Now,
		Led:    func(leads bool) { n.led(id, leads) },
		Effect: n.effect,
		Logger: n.log,
		Timing: n.config.Timing.Raft,
		Sizes:  n.config.Sizes,
	}
	if id == fsm.CatalogPartition {
		config.Applied = func() { poke(n.applied) }
	}
	group, err := partition.Open(ctx, config)
	if err != nil {
		return err
	}
	n.setGroup(id, group)
	if id == fsm.CatalogPartition {
		poke(n.applied) // it may have come from a snapshot
	}
	return nil
}

// setGroup makes a replica known, or with nil unknown.
func (n *Node) setGroup(id fsm.PartitionID, group *partition.Group) {
	n.mu.Lock()
	defer n.mu.Unlock()
	groups := make(map[fsm.PartitionID]*partition.Group)
	for other, g := range *n.groups.Load() {
		groups[other] = g
	}
	if group == nil {
		delete(groups, id)
	} else {
		groups[id] = group
	}
	n.groups.Store(&groups)
	n.changed.ring()
}

// led is called by a group that has gained or lost leadership.
func (n *Node) led(id fsm.PartitionID, leads bool) {
	n.changed.ring()
	n.router.led(id)
	if leads {
		poke(n.wake)
	}
}

func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
