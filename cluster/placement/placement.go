package placement

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// Spec is the input of a placement.
type Spec struct {
	// Candidates are the members that may hold replicas, each once. A replica on any other member
	// is replaced.
	Candidates []Candidate
	Partitions int // partitions 1 to Partitions are placed
	// Replication is the number of replicas of a partition, as far as there are candidates.
	Replication int
	Current     []fsm.Partition // the present placement
	// Rebalance evens out zones, replicas and leaders. Without it only gaps are filled: a partition
	// that lacks no replica stays as it is, even with a different number of replicas.
	Rebalance bool
}

// Compute decides which members hold which partitions. It is a pure function: equal arguments give
// equal results, whatever the order of the candidates.
//
// A replica moves only to fill a gap, to spread a partition over one zone more, or to bring loads
// (replicas by weight) closer together. The first replica of a partition is its preferred leader; the
// numbers of first replicas per member differ as little, by weight, as the replicas allow. A new
// replica gets a number above all earlier ones of its partition. Compute returns nil when some
// partition would have no replica.
func Compute(s Spec) []fsm.Partition {
	candidates := slices.Clone(s.Candidates)
	slices.SortFunc(candidates, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	p := &plan{
		candidates: candidates, byID: make(map[fsm.MemberID]*Candidate), load: make(map[fsm.MemberID]int64),
		leaders: make(map[fsm.MemberID]int64), highest: make(map[fsm.PartitionID]uint32),
	}
	for i := range candidates {
		candidates[i].Weight = cmp.Or(candidates[i].Weight, defaultWeight)
		p.byID[candidates[i].ID] = &candidates[i]
	}
	p.loadCurrent(s.Partitions, s.Current)
	if !p.fillReplicas(s.Replication, s.Rebalance) {
		return nil
	}
	if s.Rebalance {
		p.spreadZones()
		p.balanceReplicas()
	}
	p.assignLeaders(s.Rebalance)
	return p.partitions
}

// plan is the working state of Compute.
type plan struct {
	candidates []Candidate // by id
	byID       map[fsm.MemberID]*Candidate
	partitions []fsm.Partition
	wanted     []int                      // number of replicas that a partition had, 0 for a new one
	leaderGone []bool                     // whether the preferred leader of the partition is no longer a candidate
	load       map[fsm.MemberID]int64     // number of replicas held
	leaders    map[fsm.MemberID]int64     // number of partitions of which the member is the preferred leader
	highest    map[fsm.PartitionID]uint32 // highest replica number that the partition has had
}

// loadCurrent begins with the present placement, without the replicas of members that are no candidates.
func (p *plan) loadCurrent(n int, current []fsm.Partition) {
	p.partitions = make([]fsm.Partition, n)
	p.wanted, p.leaderGone = make([]int, n), make([]bool, n)
	for i := range p.partitions {
		p.partitions[i].ID = fsm.PartitionID(i + 1)
		p.leaderGone[i] = true
	}
	for _, old := range current {
		if old.ID < 1 || int(old.ID) > n {
			continue
		}
		at := int(old.ID - 1)
		part := &p.partitions[at]
		part.Formed = old.Formed
		p.wanted[at] = len(old.Replicas)
		p.highest[old.ID] = old.Last
		for i, replica := range old.Replicas {
			p.highest[old.ID] = max(p.highest[old.ID], replica.Number)
			if p.byID[replica.Member] != nil {
				part.Replicas = append(part.Replicas, replica)
				p.load[replica.Member]++
				p.leaderGone[at] = p.leaderGone[at] && i > 0
			}
		}
	}
}

// fillReplicas adds the replicas that partitions lack and drops those that are too many. It returns false when
// a partition has none.
func (p *plan) fillReplicas(replicas int, rebalance bool) bool {
	for i := range p.partitions {
		part := &p.partitions[i]
		wanted := replicas
		if !rebalance && p.wanted[i] > 0 {
			wanted = p.wanted[i]
		}
		for len(part.Replicas) > wanted {
			p.drop(part, p.replicaToDrop(part))
		}
		for len(part.Replicas) < wanted {
			best := p.bestCandidate(part, i)
			if best == nil {
				break
			}
			p.add(part, best.ID)
		}
		if len(part.Replicas) == 0 {
			return false
		}
	}
	return true
}

// countInZone counts the replicas of a partition in a zone, except that of one member.
func (p *plan) countInZone(part *fsm.Partition, zone string, without fsm.MemberID) (n int) {
	for _, replica := range part.Replicas {
		if replica.Member != without && p.byID[replica.Member].Zone == zone {
			n++
		}
	}
	return n
}

// compareLoad compares the loads of two members relative to their weights.
func (p *plan) compareLoad(a, b *Candidate) int {
	return cmp.Compare(p.load[a.ID]*int64(b.Weight), p.load[b.ID]*int64(a.Weight))
}

// bestCandidate returns the member that should get a further replica of part: in the zone with the fewest
// replicas of it, the member with the least load for its weight. The search begins at a different candidate for
// each partition, so that among equal members not always the same few share partitions.
func (p *plan) bestCandidate(part *fsm.Partition, turn int) *Candidate {
	var best *Candidate
	for i := range p.candidates {
		s := &p.candidates[(turn+i)%len(p.candidates)]
		if !s.AcceptsReplicas || HoldsReplica(part, s.ID) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(p.countInZone(part, s.Zone, ""), p.countInZone(part, best.Zone, "")), p.compareLoad(s, best)) < 0 {
			best = s
		}
	}
	return best
}

// replicaToDrop returns the member that should lose its replica of part: in the zone with the most replicas of
// it, the last of the members with the most load for their weight.
func (p *plan) replicaToDrop(part *fsm.Partition) fsm.MemberID {
	var worst *Candidate
	for _, replica := range part.Replicas {
		s := p.byID[replica.Member]
		if worst == nil || cmp.Or(cmp.Compare(p.countInZone(part, s.Zone, ""), p.countInZone(part, worst.Zone, "")), p.compareLoad(s, worst)) >= 0 {
			worst = s
		}
	}
	return worst.ID
}

func (p *plan) add(part *fsm.Partition, member fsm.MemberID) {
	p.highest[part.ID]++
	part.Replicas = append(part.Replicas, fsm.Replica{Member: member, Number: p.highest[part.ID]})
	p.load[member]++
}

func (p *plan) drop(part *fsm.Partition, member fsm.MemberID) {
	part.Replicas = slices.DeleteFunc(slices.Clone(part.Replicas), func(r fsm.Replica) bool { return r.Member == member })
	p.load[member]--
}

// spreadZones moves replicas of partitions that have several in one zone to zones that have none of them.
func (p *plan) spreadZones() {
	for i := range p.partitions {
		part := &p.partitions[i]
		for {
			from := p.replicaToDrop(part)
			to := p.bestCandidate(part, i)
			if to == nil || p.countInZone(part, to.Zone, "") > 0 || p.countInZone(part, p.byID[from].Zone, from) == 0 {
				break
			}
			p.drop(part, from)
			p.add(part, to.ID)
		}
	}
}

// improvesBalance reports whether the loads of two members come closer when high gives one replica to low.
func improvesBalance(high, low int64, weightHigh, weightLow uint32) bool {
	return (2*low+1)*int64(weightHigh) < (2*high-1)*int64(weightLow)
}

// balanceReplicas moves replicas from more to less loaded members until no move helps.
func (p *plan) balanceReplicas() {
	for p.moveOneReplica() {
	}
}

func (p *plan) moveOneReplica() bool {
	order := make([]*Candidate, len(p.candidates))
	for i := range p.candidates {
		order[i] = &p.candidates[i]
	}
	slices.SortStableFunc(order, p.compareLoad)
	for _, high := range slices.Backward(order) {
		for _, low := range order {
			if !low.AcceptsReplicas || !improvesBalance(p.load[high.ID], p.load[low.ID], high.Weight, low.Weight) {
				continue
			}
			for i := range p.partitions {
				part := &p.partitions[i]
				// A move must not leave the replicas of a partition in fewer zones.
				if !HoldsReplica(part, high.ID) || HoldsReplica(part, low.ID) ||
					p.countInZone(part, low.Zone, high.ID) > p.countInZone(part, high.Zone, high.ID) {
					continue
				}
				p.drop(part, high.ID)
				p.add(part, low.ID)
				return true
			}
		}
	}
	return false
}

// assignLeaders chooses the first replicas. A first replica on a member that may not lead changes places with
// another. While one member leads more than its share, leaderships are shifted along a chain of partitions
// (shiftLeadership). Without rebalance, only partitions that have lost their preferred leader get another.
func (p *plan) assignLeaders(rebalance bool) {
	for i := range p.partitions {
		p.leaders[p.partitions[i].Replicas[0].Member]++
	}
	for i := range p.partitions {
		part := &p.partitions[i]
		if first := p.byID[part.Replicas[0].Member]; first.AcceptsLeaders && (rebalance || !p.leaderGone[i]) {
			continue
		} else if at := p.leastLoadedLeader(part); at > 0 {
			p.leaders[first.ID]--
			p.leaders[part.Replicas[at].Member]++
			part.Replicas = slices.Clone(part.Replicas)
			part.Replicas[0], part.Replicas[at] = part.Replicas[at], part.Replicas[0]
		}
	}
	for rebalance && p.moveOneLeader() {
	}
}

// leastLoadedLeader returns the index in part of the replica whose member leads least for its weight among
// those that may lead; 0 when none may.
func (p *plan) leastLoadedLeader(part *fsm.Partition) int {
	best := -1
	for i, replica := range part.Replicas {
		s := p.byID[replica.Member]
		if !s.AcceptsLeaders {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		b := p.byID[part.Replicas[best].Member]
		if p.leaders[s.ID]*int64(b.Weight) < p.leaders[b.ID]*int64(s.Weight) {
			best = i
		}
	}
	return max(best, 0)
}

func (p *plan) moveOneLeader() bool {
	order := make([]*Candidate, len(p.candidates))
	for i := range p.candidates {
		order[i] = &p.candidates[i]
	}
	slices.SortStableFunc(order, func(a, b *Candidate) int {
		return cmp.Compare(p.leaders[b.ID]*int64(a.Weight), p.leaders[a.ID]*int64(b.Weight))
	})
	for _, high := range order {
		if low, ok := p.shiftLeadership(high); ok {
			p.leaders[high.ID]--
			p.leaders[low]++
			return true
		}
	}
	return false
}

// shiftLeadership searches breadth first, from high, along partitions that one member leads and the next one
// holds, for a member that leads so much less that one more partition evens it out. It then gives the
// leadership of every partition on the path to the next member.
func (p *plan) shiftLeadership(high *Candidate) (fsm.MemberID, bool) {
	through := map[fsm.MemberID]int{high.ID: -1} // the partition through which a member was reached
	for queue := []fsm.MemberID{high.ID}; len(queue) > 0; queue = queue[1:] {
		for i := range p.partitions {
			part := &p.partitions[i]
			if part.Replicas[0].Member != queue[0] {
				continue
			}
			for _, replica := range part.Replicas[1:] {
				s := p.byID[replica.Member]
				if _, seen := through[s.ID]; seen || !s.AcceptsLeaders {
					continue
				}
				through[s.ID] = i
				if improvesBalance(p.leaders[high.ID], p.leaders[s.ID], high.Weight, s.Weight) {
					p.swapLeaders(s.ID, high.ID, through)
					return s.ID, true
				}
				queue = append(queue, s.ID)
			}
		}
	}
	return "", false
}

// swapLeaders makes member the first replica of the partition through which it was reached, then the former
// first member of that partition the first of the partition through which that one was reached, and so on back
// to high.
func (p *plan) swapLeaders(member, high fsm.MemberID, through map[fsm.MemberID]int) {
	for member != high {
		part := &p.partitions[through[member]]
		before := part.Replicas[0].Member
		at := slices.IndexFunc(part.Replicas, func(r fsm.Replica) bool { return r.Member == member })
		part.Replicas = slices.Clone(part.Replicas)
		part.Replicas[0], part.Replicas[at] = part.Replicas[at], part.Replicas[0]
		member = before
	}
}
