package cluster

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// place decides which members hold which partitions. It is a pure function: the same
// arguments give the same answer everywhere, whatever the order of members.
//
// members are those that may hold replicas, without duplicates. current is what is
// there; what can stay stays, and a replica moves only to fill a gap or to even out
// loads that differ by more than one. partitions 1..n are placed, with
// min(replication, len(members)) replicas each. The first replica of a partition is
// its preferred leader, and the members' numbers of first replicas differ as little
// as the replicas allow. A new replica gets a number above all numbers of its partition.
func place(members []fsm.MemberID, n, replication int, current []fsm.Partition) []fsm.Partition {
	members = slices.Clone(members)
	slices.Sort(members)
	if len(members) == 0 {
		return nil
	}
	p := &plan{members: members, load: make(map[fsm.MemberID]int), highest: make(map[fsm.PartitionID]uint32)}
	p.keep(n, current)
	p.fill(min(replication, len(members)))
	p.level()
	p.lead()
	return p.partitions
}

// plan is a placement in the making.
type plan struct {
	members    []fsm.MemberID // sorted
	partitions []fsm.Partition
	load       map[fsm.MemberID]int // replicas held
	highest    map[fsm.PartitionID]uint32
}

// keep starts from what is there, without the members that are gone.
func (p *plan) keep(n int, current []fsm.Partition) {
	p.partitions = make([]fsm.Partition, n)
	for i := range p.partitions {
		p.partitions[i].ID = fsm.PartitionID(i + 1)
	}
	for _, old := range current {
		if old.ID < 1 || int(old.ID) > n {
			continue
		}
		part := &p.partitions[old.ID-1]
		part.Formed = old.Formed
		for _, replica := range old.Replicas {
			p.highest[old.ID] = max(p.highest[old.ID], replica.Number)
			if slices.Contains(p.members, replica.Member) {
				part.Replicas = append(part.Replicas, replica)
				p.load[replica.Member]++
			}
		}
	}
}

// fill gives every partition its replicas, from the least loaded members. Equal
// loads are taken in turn, beginning elsewhere for each partition, so that partitions
// do not all share the same few members.
func (p *plan) fill(replicas int) {
	for i := range p.partitions {
		part := &p.partitions[i]
		for len(part.Replicas) > replicas {
			last := part.Replicas[len(part.Replicas)-1]
			part.Replicas = part.Replicas[:len(part.Replicas)-1]
			p.load[last.Member]--
		}
		for len(part.Replicas) < replicas {
			p.add(part, p.leastLoaded(part, i))
		}
	}
}

// leastLoaded is the member with the fewest replicas among those outside of part.
func (p *plan) leastLoaded(part *fsm.Partition, turn int) fsm.MemberID {
	best := fsm.MemberID("")
	for i := range p.members {
		member := p.members[(turn+i)%len(p.members)]
		if holdsReplica(part, member) {
			continue
		}
		if best == "" || p.load[member] < p.load[best] {
			best = member
		}
	}
	return best
}

func (p *plan) add(part *fsm.Partition, member fsm.MemberID) {
	p.highest[part.ID]++
	part.Replicas = append(part.Replicas, fsm.Replica{Member: member, Number: p.highest[part.ID]})
	p.load[member]++
}

// level moves replicas from the most to the least loaded member until no move helps.
func (p *plan) level() {
	for {
		byLoad := func(a, b fsm.MemberID) int { return cmp.Compare(p.load[a], p.load[b]) }
		low, high := slices.MinFunc(p.members, byLoad), slices.MaxFunc(p.members, byLoad)
		if p.load[high]-p.load[low] <= 1 {
			return
		}
		// high holds more partitions than low, so one of them is not held by low.
		at := slices.IndexFunc(p.partitions, func(part fsm.Partition) bool {
			return holdsReplica(&part, high) && !holdsReplica(&part, low)
		})
		part := &p.partitions[at]
		part.Replicas = slices.DeleteFunc(slices.Clone(part.Replicas), func(r fsm.Replica) bool { return r.Member == high })
		p.load[high]--
		p.add(part, low)
	}
}

// lead evens out the first replicas: while one member is first in two more partitions
// than another, a chain of partitions hands one place on from the former to the latter.
func (p *plan) lead() {
	leads := make(map[fsm.MemberID]int)
	for i := range p.partitions {
		leads[p.partitions[i].Replicas[0].Member]++
	}
	for {
		moved := false
		byLeads := func(a, b fsm.MemberID) int { return cmp.Compare(leads[b], leads[a]) }
		order := slices.Clone(p.members)
		slices.SortStableFunc(order, byLeads)
		for _, high := range order {
			if low, ok := p.handOn(high, leads); ok {
				leads[high]--
				leads[low]++
				moved = true
				break
			}
		}
		if !moved {
			return
		}
	}
}

// handOn searches breadth first, from high along "leads a partition that the next one
// holds", for a member that leads at least two partitions fewer, and turns every
// partition on the way over to the next member.
func (p *plan) handOn(high fsm.MemberID, leads map[fsm.MemberID]int) (fsm.MemberID, bool) {
	through := map[fsm.MemberID]int{high: -1} // the partition by which a member was reached
	for queue := []fsm.MemberID{high}; len(queue) > 0; queue = queue[1:] {
		for i := range p.partitions {
			part := &p.partitions[i]
			if part.Replicas[0].Member != queue[0] {
				continue
			}
			for _, replica := range part.Replicas[1:] {
				if _, seen := through[replica.Member]; seen {
					continue
				}
				through[replica.Member] = i
				if leads[replica.Member]+1 < leads[high] {
					p.turnOver(replica.Member, high, through)
					return replica.Member, true
				}
				queue = append(queue, replica.Member)
			}
		}
	}
	return "", false
}

// turnOver makes member first in the partition by which it was reached, then the
// member that was first there in the one by which that one was reached, back to high.
func (p *plan) turnOver(member, high fsm.MemberID, through map[fsm.MemberID]int) {
	for member != high {
		part := &p.partitions[through[member]]
		before := part.Replicas[0].Member
		at := slices.IndexFunc(part.Replicas, func(r fsm.Replica) bool { return r.Member == member })
		part.Replicas[0], part.Replicas[at] = part.Replicas[at], part.Replicas[0]
		member = before
	}
}

func holdsReplica(part *fsm.Partition, member fsm.MemberID) bool {
	return slices.ContainsFunc(part.Replicas, func(r fsm.Replica) bool { return r.Member == member })
}
