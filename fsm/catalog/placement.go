package catalog

import (
	"math"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

const (
	membersMax = 1024 // members with a record in the catalog, removed ones included
)

// applyPlacementCommand performs the commands about members and the placement of partitions.
func (c *Machine) applyPlacementCommand(cmd fsm.Command) fsm.Result {
	switch cmd := cmd.(type) {
	case fsm.SetMember:
		return fsm.Result{Code: c.setMember(cmd.Member)}
	case fsm.PlacePartition:
		return fsm.Result{Code: c.placePartition(cmd)}
	case fsm.PartitionPlaced:
		return fsm.Result{Code: c.finishMove(cmd)}
	case fsm.ReplaceReplica:
		return fsm.Result{Code: c.replaceReplica(cmd)}
	case fsm.AddPartitions:
		return c.addPartitions(cmd)
	}
	return fsm.Result{}
}

// setMember records a member. Removed members stay known: one that returns after a long absence
// must not be mistaken for a new one.
func (c *Machine) setMember(m fsm.Member) fsm.Code {
	i, known := c.memberAt(m.ID)
	switch {
	case known && *c.members[i] == m:
		return fsm.OK
	case known && c.members[i].Removed && !m.Removed:
		return fsm.InvalidArgument
	case m.Removed && slices.ContainsFunc(c.partitions, func(p *fsm.Partition) bool { return p.HasMember(m.ID) }):
		return fsm.PreconditionFails
	case !known && len(c.members) >= membersMax:
		return fsm.QuotaExceeded
	}
	list := slices.Clone(c.members) // an image may share the old slice
	if known {
		list[i] = &m
	} else {
		list = slices.Insert(list, i, &m)
	}
	c.members = list
	return fsm.OK
}

// placePartition plans the placement of a partition on other members, or cancels a move.
//
// Only the leader of the partition knows how far a move has come, so a move that is replaced by
// another leaves the replicas that it added in Replicas: such a replica may be a voter already, and
// removing a voter without the leader can cost the partition its majority. They are removed when
// the leader confirms that the new target is reached.
func (c *Machine) placePartition(cmd fsm.PlacePartition) fsm.Code {
	old := c.partition(cmd.Partition)
	if old == nil {
		return fsm.InvalidArgument
	}
	if cmd.Seen != 0 && cmd.Seen != old.PlacementHash() {
		return fsm.Stale
	}
	if !old.Formed { // members bootstrap it with Replicas, which must be the same for all
		return fsm.PreconditionFails
	}
	p := *old
	target, code := c.targetReplicas(&p, cmd.Members)
	if code != fsm.OK {
		return code
	}
	switch {
	case p.Target == nil && fsm.SameReplicas(target, p.Replicas): // at most another leader is preferred
		p.Replicas = target
	case fsm.SameReplicas(target, p.Target):
		p.Target, p.Paused = target, cmd.Paused
	default:
		p.Replicas = p.HeldReplicas()
		p.Target, p.Paused = target, cmd.Paused
		if len(p.HeldReplicas()) > fsm.PartitionHeldMax {
			return fsm.QuotaExceeded
		}
	}
	if !slices.Equal(p.Replicas, old.Replicas) || !slices.Equal(p.Target, old.Target) || p.Paused != old.Paused {
		c.putPartition(&p)
	}
	return fsm.OK
}

// targetReplicas assigns numbers to the replicas on these members. A member that has a replica
// keeps it; others get a number that the partition never had.
func (c *Machine) targetReplicas(p *fsm.Partition, members []fsm.MemberID) ([]fsm.Replica, fsm.Code) {
	held := p.HeldReplicas()
	list := make([]fsm.Replica, len(members))
	for i, member := range members {
		replica, has := fsm.ReplicaOn(held, member)
		if !has {
			if p.Last == math.MaxUint32 {
				return nil, fsm.QuotaExceeded
			}
			if !c.acceptsReplicas(member) {
				return nil, fsm.InvalidArgument
			}
			p.Last++
			replica = fsm.Replica{Member: member, Number: p.Last}
		}
		list[i] = replica
	}
	return list, fsm.OK
}

// acceptsReplicas reports whether a member can get further replicas.
func (c *Machine) acceptsReplicas(member fsm.MemberID) bool {
	i, known := c.memberAt(member)
	return !known || !c.members[i].Drained && !c.members[i].Removed
}

// finishMove ends a move. Ending a move twice is no error: a new leader repeats the command.
func (c *Machine) finishMove(cmd fsm.PartitionPlaced) fsm.Code {
	old := c.partition(cmd.Partition)
	switch {
	case old == nil:
		return fsm.InvalidArgument
	case old.Target == nil && slices.Equal(old.Replicas, cmd.Replicas):
		return fsm.OK
	case old.Target == nil || !slices.Equal(old.Target, cmd.Replicas):
		return fsm.PreconditionFails
	}
	p := *old
	p.Replicas, p.Target, p.Paused = p.Target, nil, false
	c.putPartition(&p)
	return fsm.OK
}

// replaceReplica takes a replica out of the placement of a partition and plans another one on the same member. It is no
// longer a replica of the partition from now on, so no move brings it back; its leader removes it from the group first.
// A replica that has been replaced is none anymore: the command can be repeated.
func (c *Machine) replaceReplica(cmd fsm.ReplaceReplica) fsm.Code {
	old := c.partition(cmd.Partition)
	switch {
	case old == nil:
		return fsm.InvalidArgument
	case !old.Formed:
		return fsm.PreconditionFails
	case !slices.Contains(old.HeldReplicas(), cmd.Replica):
		return fsm.OK
	}
	p := *old
	if p.Target == nil {
		p.Target = p.Replicas
	}
	p.Replicas = slices.DeleteFunc(slices.Clone(p.Replicas), func(r fsm.Replica) bool { return r == cmd.Replica })
	if len(p.Replicas) == 0 {
		return fsm.PreconditionFails
	}
	if at := slices.Index(p.Target, cmd.Replica); at >= 0 {
		if p.Last == math.MaxUint32 {
			return fsm.QuotaExceeded
		}
		p.Last++
		p.Target = slices.Clone(p.Target)
		p.Target[at].Number = p.Last
	}
	c.putPartition(&p)
	return fsm.OK
}

func (c *Machine) addPartitions(cmd fsm.AddPartitions) fsm.Result {
	switch {
	case c.clusterID == "":
		return fsm.Result{Code: fsm.PreconditionFails}
	case len(c.partitions)+len(cmd.Partitions) > fsm.PartitionsMax:
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	list := slices.Clone(c.partitions)
	for _, members := range cmd.Partitions {
		p := &fsm.Partition{ID: fsm.PartitionID(len(list) + 1), Last: 1}
		for _, member := range members {
			if !c.acceptsReplicas(member) {
				return fsm.Result{Code: fsm.InvalidArgument}
			}
			p.Replicas = append(p.Replicas, fsm.Replica{Member: member, Number: 1})
		}
		list = append(list, p)
	}
	c.partitions = list
	c.load = append(c.load, make([]int, len(cmd.Partitions))...)
	return fsm.Result{Count: uint64(len(list))}
}

// Partitions returns the partitions by ID, without the catalog. The caller must not
// write to the replicas.
func (c *Machine) Partitions() []fsm.Partition {
	list := make([]fsm.Partition, len(c.partitions))
	for i, p := range c.partitions {
		list[i] = *p
	}
	return list
}

// Members returns the members with a record, by ID, removed ones included.
func (c *Machine) Members() []fsm.Member {
	list := make([]fsm.Member, len(c.members))
	for i, m := range c.members {
		list[i] = *m
	}
	return list
}

// Member finds a member; if it has no record, the result is false and the zero value with the ID.
func (c *Machine) Member(id fsm.MemberID) (fsm.Member, bool) {
	if i, known := c.memberAt(id); known {
		return *c.members[i], true
	}
	return fsm.Member{ID: id}, false
}
