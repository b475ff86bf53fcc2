package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
)

const (
	twinDials     = 10 // attempts to reach a process that has the identity of this member
	twinDialPause = time.Second
)

// twin finds another process with the identity of this member: one on a copy of its data folder. Votes go by the address of a
// member, so two such processes could both vote in one term. Each of them stops.
type twin struct {
	node  *Node
	found chan struct{} // closed when there is one
	once  sync.Once
}

// appeared is called when gossip names another process of this member. That may be the one before this, of which gossip does
// not know the end: only one that answers is a twin.
func (t *twin) appeared(address string) {
	n := t.node
	n.startTask(func(ctx context.Context) {
		for range twinDials {
			if n.peers.FindTwin(ctx, address) { // has called stopMember
				return
			}
			pause := time.NewTimer(twinDialPause)
			select {
			case <-pause.C:
			case <-t.found:
				pause.Stop()
				return
			case <-ctx.Done():
				pause.Stop()
				return
			}
		}
	})
}

// stopMember records that another process has the identity of this member, and ends all streams: this process confirms
// nothing any more, and has no vote.
func (t *twin) stopMember(reason error) {
	t.once.Do(func() {
		n := t.node
		n.peers.Halt()
		if err := n.dataDir.MarkCopied(); err != nil {
			n.log.Error("failed to record that another process has the identity of this member", "error", err)
		}
		n.log.Error("another process has the identity of this member, which stops: see the runbook on copied data folders", "reason", reason)
		n.fail(datadir.ErrCopied)
		close(t.found)
	})
}
