package simplan

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	companionAfter  = 4 * time.Second // at most, from what the companion of a fault disturbs
	companionLength = 8 * time.Second // at most
)

// companions lists the faults that disturb an operation.
var companions = []Kind{Kill, PowerLoss, Isolate, Reset, Delay, Restart, Shortage, HungDisk, Garble} //nolint:gochecknoglobals // read only

// twins lists the faults that two of five voters have at once.
var twins = []Kind{Kill, PowerLoss, Isolate, Suspend, Restart, HungDisk, CrawlDisk, FullDisk, Mute, Deafen} //nolint:gochecknoglobals // read only

// Replicas returns how many replicas each partition has: five in some of the clusters of five members.
func (p *Plan) Replicas() int {
	if p.Members == 5 && p.Seed%fiveVotersOf == 0 {
		return p.Members
	}
	return replicasMax
}

const fiveVotersOf = 3 // clusters of five members of which one has partitions with five replicas

// operates reports whether a fault changes the replicas of partitions, heals or restores them.
func (f *Fault) operates() bool {
	return f.Kind == Move || f.Kind == Drain || f.Kind == Scale || f.Kind == Restore || f.losesData()
}

// addCompanions adds faults while members are moved, healed or restored, and, to partitions with five voters, faults of two at once.
func (p *Plan) addCompanions(r *rand.Rand) {
	for _, f := range slices.Clone(p.Faults) {
		with := Fault{At: f.At + time.Duration(r.Int64N(int64(companionAfter))), Length: faultLengthMin + time.Duration(r.Int64N(int64(companionLength)))}
		switch {
		case p.Replicas() > replicasMax && slices.Contains(twins, f.Kind) && r.IntN(2) == 0:
			with.Kind, with.At, with.Length, with.Amount = twins[r.IntN(len(twins))], f.At, f.Length, crawlDiskMax/2
		case f.operates() && r.IntN(2) == 0:
			with.Kind = companions[r.IntN(len(companions))]
			if f.losesData() {
				with.At += f.Length // when the member heals
			}
			if with.Kind == Delay {
				with.Amount = time.Duration(r.Int64N(int64(delayMax)))
			}
		default:
			continue
		}
		with.Member = f.Other
		with.Other = (with.Member + 1) % p.Members
		if i := slices.IndexFunc(p.Faults, func(f Fault) bool { return f.copiesFolder() }); i < 0 || !p.Faults[i].mustBeAlone(&with) {
			p.Faults = append(p.Faults, with)
		}
	}
}
