package fsm

import (
	"cmp"
	"math"
	"slices"

	"github.com/peeklock/peeklock/fsm/planted"
)

const (
	membersMax = 1024 // members with a record in the catalog, removed ones included
)

// applyPlacementCommand performs the commands about members and the placement of partitions.
func (c *Catalog) applyPlacementCommand(cmd Command) Result {
	switch cmd := cmd.(type) {
	case SetMember:
		return Result{Code: c.setMember(cmd.Member)}
	case PlacePartition:
		return Result{Code: c.placePartition(cmd)}
	case PartitionPlaced:
		return Result{Code: c.finishMove(cmd)}
	case ReplaceReplica:
		return Result{Code: c.replaceReplica(cmd)}
	case AddPartitions:
		return c.addPartitions(cmd)
	}
	return Result{}
}

func (c *Catalog) memberAt(id MemberID) (int, bool) {
	return slices.BinarySearchFunc(c.members, id, func(m *Member, id MemberID) int { return cmp.Compare(m.ID, id) })
}

// setMember records a member. Removed members stay known: one that returns after a long absence
// must not be mistaken for a new one.
func (c *Catalog) setMember(m Member) Code {
	i, known := c.memberAt(m.ID)
	switch {
	case known && *c.members[i] == m:
		return OK
	case known && c.members[i].Removed && !m.Removed:
		return InvalidArgument
	case m.Removed && slices.ContainsFunc(c.partitions, func(p *Partition) bool { return p.hasMember(m.ID) }):
		return PreconditionFails
	case !known && len(c.members) >= membersMax:
		return QuotaExceeded
	}
	list := slices.Clone(c.members) // an image may share the old slice
	if known {
		list[i] = &m
	} else {
		list = slices.Insert(list, i, &m)
	}
	c.members = list
	return OK
}

// placePartition plans the placement of a partition on other members, or cancels a move.
//
// Only the leader of the partition knows how far a move has come, so a move that is replaced by
// another leaves the replicas that it added in Replicas: such a replica may be a voter already, and
// removing a voter without the leader can cost the partition its majority. They are removed when
// the leader confirms that the new target is reached.
func (c *Catalog) placePartition(cmd PlacePartition) Code {
	old := c.partition(cmd.Partition)
	if old == nil {
		return InvalidArgument
	}
	if cmd.Seen != 0 && cmd.Seen != old.PlacementHash() && !planted.Active(planted.OverwritePlacement) {
		return Stale
	}
	if !old.Formed { // members bootstrap it with Replicas, which must be the same for all
		return PreconditionFails
	}
	p := *old
	target, code := c.targetReplicas(&p, cmd.Members)
	if code != OK {
		return code
	}
	switch {
	case p.Target == nil && sameReplicas(target, p.Replicas): // at most another leader is preferred
		p.Replicas = target
	case sameReplicas(target, p.Target):
		p.Target, p.Paused = target, cmd.Paused
	default:
		p.Replicas = p.heldReplicas()
		p.Target, p.Paused = target, cmd.Paused
		if len(p.heldReplicas()) > partitionHeldMax {
			return QuotaExceeded
		}
	}
	if !slices.Equal(p.Replicas, old.Replicas) || !slices.Equal(p.Target, old.Target) || p.Paused != old.Paused {
		c.putPartition(&p)
	}
	return OK
}

// targetReplicas assigns numbers to the replicas on these members. A member that has a replica
// keeps it; others get a number that the partition never had.
func (c *Catalog) targetReplicas(p *Partition, members []MemberID) ([]Replica, Code) {
	held := p.heldReplicas()
	list := make([]Replica, len(members))
	for i, member := range members {
		replica, has := replicaOn(held, member)
		if !has {
			if p.Last == math.MaxUint32 {
				return nil, QuotaExceeded
			}
			if !c.acceptsReplicas(member) {
				return nil, InvalidArgument
			}
			p.Last++
			replica = Replica{Member: member, Number: p.Last}
		}
		list[i] = replica
	}
	return list, OK
}

// acceptsReplicas reports whether a member can get further replicas.
func (c *Catalog) acceptsReplicas(member MemberID) bool {
	i, known := c.memberAt(member)
	return !known || !c.members[i].Drained && !c.members[i].Removed
}

// finishMove ends a move. Ending a move twice is no error: a new leader repeats the command.
func (c *Catalog) finishMove(cmd PartitionPlaced) Code {
	old := c.partition(cmd.Partition)
	switch {
	case old == nil:
		return InvalidArgument
	case old.Target == nil && slices.Equal(old.Replicas, cmd.Replicas):
		return OK
	case old.Target == nil || !slices.Equal(old.Target, cmd.Replicas):
		return PreconditionFails
	}
	p := *old
	p.Replicas, p.Target, p.Paused = p.Target, nil, false
	c.putPartition(&p)
	return OK
}

// replaceReplica takes a replica out of the placement of a partition and plans another one on the same member. It is no
// longer a replica of the partition from now on, so no move brings it back; its leader removes it from the group first.
// A replica that has been replaced is none anymore: the command can be repeated.
func (c *Catalog) replaceReplica(cmd ReplaceReplica) Code {
	old := c.partition(cmd.Partition)
	switch {
	case old == nil:
		return InvalidArgument
	case !old.Formed:
		return PreconditionFails
	case !slices.Contains(old.heldReplicas(), cmd.Replica):
		return OK
	}
	p := *old
	if p.Target == nil {
		p.Target = p.Replicas
	}
	p.Replicas = slices.DeleteFunc(slices.Clone(p.Replicas), func(r Replica) bool { return r == cmd.Replica })
	if len(p.Replicas) == 0 {
		return PreconditionFails
	}
	if at := slices.Index(p.Target, cmd.Replica); at >= 0 {
		if p.Last == math.MaxUint32 {
			return QuotaExceeded
		}
		p.Last++
		p.Target = slices.Clone(p.Target)
		p.Target[at].Number = p.Last
	}
	c.putPartition(&p)
	return OK
}

func (c *Catalog) addPartitions(cmd AddPartitions) Result {
	switch {
	case c.clusterID == "":
		return Result{Code: PreconditionFails}
	case len(c.partitions)+len(cmd.Partitions) > partitionsMax:
		return Result{Code: QuotaExceeded}
	}
	list := slices.Clone(c.partitions)
	for _, members := range cmd.Partitions {
		p := &Partition{ID: PartitionID(len(list) + 1), Last: 1}
		for _, member := range members {
			if !c.acceptsReplicas(member) {
				return Result{Code: InvalidArgument}
			}
			p.Replicas = append(p.Replicas, Replica{Member: member, Number: 1})
		}
		list = append(list, p)
	}
	c.partitions = list
	c.load = append(c.load, make([]int, len(cmd.Partitions))...)
	return Result{Count: uint64(len(list))}
}

// partition finds a partition, nil if there is none and for the catalog.
func (c *Catalog) partition(id PartitionID) *Partition {
	if id == CatalogPartition || int64(id) > int64(len(c.partitions)) {
		return nil
	}
	return c.partitions[id-1]
}

// putPartition replaces a partition. The slice is copied, not written: an image may share it.
func (c *Catalog) putPartition(p *Partition) {
	c.partitions = slices.Clone(c.partitions)
	c.partitions[p.ID-1] = p
}

// Partitions returns the partitions by ID, without the catalog. The caller must not
// write to the replicas.
func (c *Catalog) Partitions() []Partition {
	list := make([]Partition, len(c.partitions))
	for i, p := range c.partitions {
		list[i] = *p
	}
	return list
}

// Members returns the members with a record, by ID, removed ones included.
func (c *Catalog) Members() []Member {
	list := make([]Member, len(c.members))
	for i, m := range c.members {
		list[i] = *m
	}
	return list
}

// Member finds a member; if it has no record, the result is false and the zero value with the ID.
func (c *Catalog) Member(id MemberID) (Member, bool) {
	if i, known := c.memberAt(id); known {
		return *c.members[i], true
	}
	return Member{ID: id}, false
}
