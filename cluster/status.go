package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// statusWaitMax bounds the asking of leaders for one Status.
const statusWaitMax = time.Second

// Status is the cluster as the answering member sees it.
type Status struct {
	ClusterID  string
	Level      uint32 // what may be written, see fsm.Level
	Members    []MemberStatus
	Partitions []PartitionStatus // the catalog first
}

// MemberStatus is one process of the cluster.
type MemberStatus struct {
	ID      fsm.MemberID
	Name    string
	State   string // alive, dead, left
	Version string // of the binary
	AMQP    string // host:port for clients
	HTTP    string // host:port for admin
	Leads   int    // partitions led
	Holds   int    // replicas held
	// ReadOnly says that its disk or its memory is nearly full: it takes no new messages, leaderships and
	// replicas until there is room.
	ReadOnly bool
}

// PartitionStatus is one raft group.
type PartitionStatus struct {
	ID       fsm.PartitionID
	Leader   fsm.MemberID // empty: none known
	Term     uint64
	Applied  uint64
	Replicas []fsm.MemberID // voters and others, the preferred leader first
	Entities int
	Messages uint64
	Contact  time.Duration // since the leader was heard, on the answering member; 0 without a replica
}

// Status is the cluster as its leaders see it. It asks each for up to a second; instead of
// what one does not answer stands what this member knows.
func (r *Router) Status(ctx context.Context) (Status, error) { return r.status(ctx) }

func (n *Node) status(ctx context.Context) (Status, error) {
	s := Status{ClusterID: n.clusterID(), Level: n.Level()}
	ctx, cancel := context.WithTimeout(ctx, statusWaitMax)
	defer cancel()
	parts := append([]fsm.Partition{{ID: fsm.CatalogPartition}}, n.newestPlacement(ctx)...)
	s.Partitions = make([]PartitionStatus, len(parts))
	var asking sync.WaitGroup
	for i := range parts {
		asking.Go(func() { s.Partitions[i] = n.partitionStatus(ctx, &parts[i]) })
	}
	asking.Wait()
	leads, holds := map[fsm.MemberID]int{}, map[fsm.MemberID]int{}
	for i := range s.Partitions {
		leads[s.Partitions[i].Leader]++
		for _, member := range s.Partitions[i].Replicas {
			holds[member]++
		}
	}
	for _, m := range n.gossip.All() {
		s.Members = append(s.Members, MemberStatus{
			ID: m.Member, Name: m.Name, State: m.State(), Version: m.Version,
			AMQP: m.AMQP, HTTP: m.HTTP, Leads: leads[m.Member], Holds: holds[m.Member], ReadOnly: m.ReadOnly,
		})
	}
	return s, nil
}

// newestPlacement is where the catalog's leader says that partitions lie: whoever has just moved
// one wants to see it there. Without a leader it is what our own replica knows.
func (n *Node) newestPlacement(ctx context.Context) []fsm.Partition {
	ctx, cancel := context.WithTimeout(ctx, statusWaitMax/2)
	defer cancel()
	if all, err := n.router.placement(ctx, fsm.CatalogPartition); err == nil {
		return all.Partitions
	}
	if placed := n.placed.Load(); placed != nil {
		return *placed
	}
	return nil
}

// partitionStatus is what the replica here knows, with the figures of the leader.
func (n *Node) partitionStatus(ctx context.Context, part *fsm.Partition) PartitionStatus {
	p := PartitionStatus{ID: part.ID}
	for _, r := range part.Replicas {
		p.Replicas = append(p.Replicas, r.Member)
	}
	if own := n.local(part.ID); own != nil {
		s := own.Status()
		p.Leader, p.Term, p.Applied, p.Contact = s.Leader, s.Term, s.Applied, s.LastContact
		if part.ID == fsm.CatalogPartition {
			for _, v := range append(s.Voters, s.Nonvoters...) {
				p.Replicas = append(p.Replicas, v.Member)
			}
		}
	}
	if p.Leader == "" {
		waiting, cancel := context.WithTimeout(ctx, statusWaitMax/2)
		defer cancel()
		p.Leader, _ = n.router.line(part.ID).awaitLeader(waiting)
	}
	var figures statusReply
	err := errNotLeader
	switch p.Leader {
	case "":
	case n.self:
		figures, err = n.router.desk.status(part.ID)
	default:
		figures, err = n.askStatus(ctx, p.Leader, part.ID)
	}
	if err != nil {
		figures, err = n.router.desk.status(part.ID)
	}
	if err == nil {
		p.Entities, p.Messages = figures.Entities, figures.Messages
		p.Term, p.Applied = max(p.Term, figures.Term), max(p.Applied, figures.Applied)
	}
	return p
}
