package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	departWaitMax = 5 * time.Second  // for the question whether a replica is out
	emptyWaitMax  = 30 * time.Second // for a removed member to remove what it held
)

// retire closes the replicas of this member that are none any more and removes their files.
// It runs beside everything else, once at a time, and is repeated until nothing is left.
func (n *Node) retire(placed []fsm.Partition) {
	if len(n.retired(placed)) == 0 {
		return
	}
	n.mu.Lock()
	running := n.retiring
	n.retiring = true
	n.mu.Unlock()
	if running {
		return
	}
	ended := func() {
		n.mu.Lock()
		n.retiring = false
		n.mu.Unlock()
	}
	if !n.start(func(ctx context.Context) {
		defer ended()
		n.retireAll(ctx, placed)
	}) {
		ended()
	}
}

func (n *Node) retireAll(ctx context.Context, placed []fsm.Partition) {
	for _, r := range n.retired(placed) {
		if ctx.Err() != nil {
			return
		}
		if err := n.retireOne(ctx, r.id, r.number); err != nil {
			n.log.DebugContext(ctx, "a replica that is none any more stays for now", "partition", r.id, "number", r.number, "error", err)
		}
	}
}

// ownReplica is one folder of ours.
type ownReplica struct {
	id     fsm.PartitionID
	number uint32
}

// folders lists the replicas of messages whose folders are here, by partition and number.
func (n *Node) folders() ([]ownReplica, error) {
	entries, err := os.ReadDir(filepath.Join(n.config.Dir, "groups"))
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	var all []ownReplica
	for _, entry := range entries {
		if id, number, ok := parseReplicaFolder(entry.Name()); ok && id != fsm.CatalogPartition {
			all = append(all, ownReplica{id, number})
		}
	}
	slices.SortFunc(all, func(a, b ownReplica) int {
		if a.id != b.id {
			return int(a.id) - int(b.id)
		}
		return int(a.number) - int(b.number)
	})
	return all, nil
}

// retired lists the replicas here that the record of their partition knows to be out. A
// partition that the record does not know yet, or a number that it has not given yet, means
// that the record is old: after a restart our replica of the catalog begins where its
// snapshot ends.
func (n *Node) retired(placed []fsm.Partition) (out []ownReplica) {
	all, err := n.folders()
	if err != nil {
		n.log.Error("look for replicas", "error", err)
		return nil
	}
	for _, r := range all {
		if int64(r.id) <= int64(len(placed)) && isOut(&placed[r.id-1], fsm.Replica{Member: n.self, Number: r.number}) {
			out = append(out, r)
		}
	}
	return out
}

// retireOne removes one replica, once its group has removed it. partition leaves a mark
// before the first file goes, so that a crash in between is finished at the next start.
func (n *Node) retireOne(ctx context.Context, id fsm.PartitionID, number uint32) error {
	group, open := (*n.groups.Load())[id], n.numberOf(id) == number
	if !open || group == nil || !group.Status().Removed {
		if err := n.askDeparted(ctx, id, number); err != nil {
			return err
		}
	}
	// What was begun is not left half done because this member closes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeMax)
	defer cancel()
	path := n.folder.replicaPath(id, number)
	var err error
	if open && group != nil {
		n.setGroup(id, 0, nil)
		n.carrier.lead(id, false)
		err = group.Destroy(ctx)
	} else {
		err = partition.Drop(n.store, id, replicaID(n.self, number), path)
	}
	if err != nil {
		return err
	}
	n.log.InfoContext(ctx, "a replica that is none any more was removed", "partition", id, "number", number)
	notify.WakeUp(n.applied) // another one of the group may wait for its place
	return nil
}

// askDeparted asks the leader of the group: a replica that was away when it was removed does
// not know it.
func (n *Node) askDeparted(ctx context.Context, id fsm.PartitionID, number uint32) error {
	ctx, cancel := context.WithTimeout(ctx, departWaitMax)
	defer cancel()
	reply, err := n.router.askLeader(ctx, id, queryDepart, departQuery{Partition: id, Replica: fsm.Replica{Member: n.self, Number: number}})
	if err == nil {
		err = reply.decode(nil)
	}
	return err
}

// ErrRemoved says that this member was removed from its cluster: it holds nothing and takes
// part in nothing. Its folder can be emptied to start over as a new member.
var ErrRemoved = errors.New("this member was removed from its cluster for good: empty its data folder to start over as a new one")

// Removed is closed when this member learns that it was removed from its cluster; the
// process should then close it and end. Ready returns ErrRemoved from then on.
func (n *Node) Removed() <-chan struct{} { return n.expelled }

// expel is called when the catalog, or somebody who knows it, says that we are removed.
func (n *Node) expel(ctx context.Context) {
	n.mu.Lock()
	first := !n.isExpelled
	n.isExpelled = true
	n.mu.Unlock()
	if !first {
		return
	}
	n.founder.mu.Lock()
	err := n.folder.change(func(id *identity) { id.Removed = true })
	n.founder.mu.Unlock()
	if err != nil {
		n.log.ErrorContext(ctx, "record that this member was removed", "error", err)
	}
	n.log.ErrorContext(ctx, "this member was removed from the cluster and takes part in nothing any more")
	n.mu.Lock()
	n.failed = ErrRemoved
	n.mu.Unlock()
	n.changed.Notify()
	close(n.expelled)
}

// helloQuery is the argument of queryHello. Who asks hears whether it was removed.
type helloQuery struct {
	From fsm.MemberID `json:"From"`
}

// hello answers queryHello.
func (n *Node) hello(arguments []byte) queryReply {
	var q helloQuery
	if json.Unmarshal(arguments, &q) != nil {
		return queryReply{status: queryFailed, code: fsm.InvalidArgument}
	}
	reply := n.founder.hello()
	reply.Removed = q.From != "" && n.memberOf(q.From).Removed
	reply.Knows, reply.Needs = n.knows(), n.level.Load()
	return replyWith(reply, nil)
}

// askIfRemoved asks the others while nobody leads the catalog here: a member that was
// removed while it was away hears of nobody else, for no leader sends to it.
func (n *Node) askIfRemoved(ctx context.Context) {
	cluster := n.clusterID()
	group := (*n.groups.Load())[fsm.CatalogPartition]
	if group == nil || cluster == "" {
		return
	}
	if status := group.Status(); status.Leader != "" && !status.Removed {
		return
	}
	for _, hello := range n.founder.askAll(ctx, n.gossip.Alive()) {
		if hello.Removed && hello.Cluster == cluster {
			if !n.emptying() {
				n.expel(ctx)
			}
			return
		}
	}
}

// emptying says whether a member that was removed is still removing what it held: the catalog can
// let it go before it is done.
func (n *Node) emptying() bool {
	n.mu.Lock()
	if n.dismissed.IsZero() {
		n.dismissed = time.Now()
	}
	since := n.dismissed
	n.mu.Unlock()
	placed := n.placed.Load()
	if placed == nil || time.Since(since) > emptyWaitMax || len(n.retired(*placed)) == 0 {
		return false
	}
	n.retire(*placed)
	return true
}
