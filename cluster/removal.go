package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// retireTimeout is how long a removed member may take to remove its replicas.
const retireTimeout = 30 * time.Second

// removal is what a member knows about its removal from the cluster.
type removal struct {
	node *Node
	done chan struct{} // closed when this member learns that it was removed

	mu        sync.Mutex // guards the fields below
	isRemoved bool
	reported  time.Time // when another member first reported that this one was removed
}

// is reports whether this member was removed.
func (r *removal) is() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isRemoved
}

// mark is called when the catalog, or another member that has the catalog, reports that this member was
// removed.
func (r *removal) mark(ctx context.Context) {
	n := r.node
	r.mu.Lock()
	first := !r.isRemoved
	r.isRemoved = true
	r.mu.Unlock()
	if !first {
		return
	}
	err := n.dataDir.Update(func(id *datadir.Identity) { id.Removed = true })
	if err != nil {
		n.log.ErrorContext(ctx, "failed to record that this member was removed", "error", err)
	}
	n.log.ErrorContext(ctx, "this member was removed from the cluster and stopped taking part in it")
	n.fail(datadir.ErrRemoved)
	close(r.done)
}

// hasLeft reports whether a member was removed and a committed configuration of the catalog is without it. Until
// then the catalog may need its vote, and its process must not end.
func (r *removal) hasLeft(id fsm.MemberID) bool {
	n := r.node
	group := n.replicas.Group(fsm.CatalogPartition)
	if group == nil || !n.memberRecord(id).Removed {
		return false
	}
	status := group.Status()
	return status.ConfigurationCommitted && !slices.ContainsFunc(slices.Concat(status.Voters, status.Nonvoters), func(v partition.Voter) bool { return v.Member == id })
}

// askIfRemoved asks the other members while this one knows no leader of the catalog: no leader sends entries to
// a member that was removed while it was away, so it cannot learn of its removal otherwise.
func (r *removal) askIfRemoved(ctx context.Context) {
	n := r.node
	cluster := n.clusterID()
	group := n.replicas.Group(fsm.CatalogPartition)
	if group == nil || cluster == "" {
		return
	}
	if status := group.Status(); status.Leader != "" && !status.Removed {
		return
	}
	for _, hello := range n.bootstrapper.AskAll(ctx, n.gossip.Alive()) {
		if hello.Removed && hello.Cluster == cluster {
			if !r.isRetiring() {
				r.mark(ctx)
			}
			return
		}
	}
}

// isRetiring reports whether a removed member is still removing its replicas. The catalog may have dropped the
// member before that is complete.
func (r *removal) isRetiring() bool {
	n := r.node
	r.mu.Lock()
	if r.reported.IsZero() {
		r.reported = time.Now()
	}
	since := r.reported
	r.mu.Unlock()
	placed := n.partitions.Load()
	if placed == nil || time.Since(since) > retireTimeout || len(n.retirer.Retired(*placed)) == 0 {
		return false
	}
	n.retirer.Retire(*placed)
	return true
}
