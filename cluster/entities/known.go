package entities

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/fsm"
)

// Times of awaitKnown. A follower learns within about half a second that an entry of the idle catalog is committed.
const (
	knownWithin = 5 * time.Second // for members that do not answer, although gossip considers them alive
	knownPause  = 20 * time.Millisecond
)

// awaitKnown waits until the catalogs of all living members have what the catalog's leader has applied, or until knownWithin
// has passed.
func (r *Manager) awaitKnown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	index, err := query.CatalogIndex.Ask(ctx, r.Leader(fsm.CatalogPartition), struct{}{})
	if err != nil {
		return
	}
	var waiting sync.WaitGroup
	for _, member := range r.transport.LeaderCandidates(fsm.CatalogPartition) {
		waiting.Go(func() {
			awaitIndex(ctx, func() bool {
				conn := r.transport.Conn(member)
				if conn == nil {
					return true // this member is closing
				}
				status, err := query.StatusOfReplica.Ask(ctx, conn.Query, query.StatusQuery{Partition: fsm.CatalogPartition})
				return err == nil && status.Applied >= index
			})
		})
	}
	awaitIndex(ctx, func() bool { return r.replicas.CatalogApplied() >= index })
	waiting.Wait()
}

// awaitIndex waits until isApplied returns true or ctx ends.
func awaitIndex(ctx context.Context, isApplied func() bool) {
	for ctx.Err() == nil && !isApplied() {
		notify.Pause(ctx, knownPause)
	}
}
