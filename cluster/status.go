package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/levels"
	"github.com/peeklock/peeklock/cluster/placement"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// statusTimeout bounds the queries to leaders for one Status.
const statusTimeout = time.Second

// Status returns the state of the cluster as its leaders report it. It asks each leader for up to a second; if
// a leader does not answer, Status returns what this member knows.
func (o *Operator) Status(ctx context.Context) (topology.Status, error) { return o.node.Status(ctx) }

// Status returns the state of the cluster as Operator.Status does.
func (n *Node) Status(ctx context.Context) (topology.Status, error) {
	s := topology.Status{ClusterID: n.clusterID(), FormatLevel: n.FormatLevel()}
	compared := n.clocks.Last()
	s.TimeHeld, s.TimeStep = compared.Held, compared.Step
	if catalog := n.replicas.Local(fsm.CatalogPartition); catalog != nil {
		s.FormatLevelMax = levels.Max(catalog)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	parts := append([]fsm.Partition{{ID: fsm.CatalogPartition}}, n.currentPlacement(ctx)...)
	s.Partitions = make([]topology.Partition, len(parts))
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
	s.Members = n.knownMembers()
	for i := range s.Members {
		m := &s.Members[i]
		m.Leads, m.Holds = leads[m.ID], holds[m.ID]
	}
	return s, nil
}

// knownMembers returns the members of the cluster with their states: those that gossip lists and those of the catalog.
// A member of the catalog that gossip does not list is dead: gossip forgets dead members when the others restart.
// A removed member is included while its process is alive.
func (n *Node) knownMembers() []topology.Member {
	var known []topology.Member
	add := func(m *topology.Member) {
		record := n.memberRecord(m.ID)
		if record.Removed && m.State != topology.Alive || slices.ContainsFunc(known, func(k topology.Member) bool { return k.ID == m.ID }) {
			return
		}
		m.Name, m.Drained = cmp.Or(m.Name, record.Name), record.Drained
		known = append(known, *m)
	}
	for _, m := range n.gossip.All() {
		add(&topology.Member{
			ID: m.Member, Name: m.Name, State: m.State(), Version: m.Version, AMQP: m.AMQP, HTTP: m.HTTP,
			ReadOnly: m.ReadOnly, ClockOff: n.clocks.IsOff(m.Member),
		})
	}
	if recorded := n.members.Load(); recorded != nil {
		for _, m := range *recorded {
			add(&topology.Member{ID: m.ID, State: topology.Dead})
		}
	}
	for _, holders := range n.wantedReplicas() {
		for _, id := range holders {
			add(&topology.Member{ID: id, State: topology.Dead})
		}
	}
	return known
}

// wantedReplicas returns the members that should hold each partition, by this member's replica of the catalog. Those
// that should hold the catalog are its voters.
func (n *Node) wantedReplicas() map[fsm.PartitionID][]fsm.MemberID {
	wanted := make(map[fsm.PartitionID][]fsm.MemberID)
	if catalog := n.replicas.Local(fsm.CatalogPartition); catalog != nil {
		for _, v := range catalog.Status().Voters {
			wanted[fsm.CatalogPartition] = append(wanted[fsm.CatalogPartition], v.Member)
		}
	}
	if placed := n.partitions.Load(); placed != nil {
		for i := range *placed {
			wanted[(*placed)[i].ID] = placement.Members((*placed)[i].Replicas)
		}
	}
	return wanted
}

// currentPlacement returns the placement that the catalog's leader reports, so that an operator who has just
// moved a partition sees the move. Without a leader it returns the placement in this member's replica.
func (n *Node) currentPlacement(ctx context.Context) []fsm.Partition {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout/2)
	defer cancel()
	if all, err := n.placementFromLeader(ctx, fsm.CatalogPartition); err == nil {
		return all.Partitions
	}
	if placed := n.partitions.Load(); placed != nil {
		return *placed
	}
	return nil
}

// partitionStatus combines the status of this member's replica with the statistics of the leader.
func (n *Node) partitionStatus(ctx context.Context, part *fsm.Partition) topology.Partition {
	p := topology.Partition{ID: part.ID}
	for _, r := range part.Replicas {
		p.Replicas = append(p.Replicas, r.Member)
	}
	if own := n.replicas.Local(part.ID); own != nil {
		s := own.Status()
		p.Leader, p.Term, p.Applied, p.Contact = s.Leader, s.Term, s.Applied, s.LastContact
		if part.ID == fsm.CatalogPartition {
			for _, v := range append(s.Voters, s.Nonvoters...) {
				p.Replicas = append(p.Replicas, v.Member)
			}
		}
	}
	if p.Leader == "" {
		waiting, cancel := context.WithTimeout(ctx, statusTimeout/2)
		defer cancel()
		p.Leader, _ = n.router.AwaitLeader(waiting, part.ID)
	}
	var leader raftgroup.Status
	err := rpc.ErrNotLeader
	switch p.Leader {
	case "":
	case n.self:
		leader, err = n.router.ReplicaStatus(part.ID)
	default:
		leader, err = n.askStatus(ctx, p.Leader, part.ID)
	}
	if err != nil {
		leader, err = n.router.ReplicaStatus(part.ID)
	}
	if err == nil {
		p.Entities, p.Messages = leader.Entities, leader.Messages
		p.Term, p.Applied = max(p.Term, leader.Term), max(p.Applied, leader.Applied)
	}
	return p
}
