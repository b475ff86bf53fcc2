package simplan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Kill       Kind = "kill"       // the process of a member ends; its peers notice
	PowerLoss  Kind = "power loss" // a host loses power; its peers are not told
	Blackout   Kind = "blackout"   // all hosts lose power
	Isolate    Kind = "isolate"    // nothing gets to a member or from it
	Mute       Kind = "mute"       // nothing gets from a member to the others; it hears them
	Deafen     Kind = "deafen"     // nothing gets to a member; the others hear it
	CutOne     Kind = "cut link"   // nothing gets between two members, both ways
	Halves     Kind = "halves"     // the members are split into two groups
	Ring       Kind = "ring"       // each member hears only the one before it
	Delay      Kind = "delay"      // messages of a member take up to Amount longer
	Narrow     Kind = "narrow"     // each stream of a member takes Amount for a mebibyte
	Reset      Kind = "reset"      // every stream between two members breaks
	Suspend    Kind = "suspend"    // a host stands still: nothing gets to it or from it, and its monotonic clock does not count
	Standstill Kind = "standstill" // all hosts stand still
	Restart    Kind = "restart"    // a member is stopped in order and started again
	FullDisk   Kind = "full disk"  // the disk of a member takes nothing more
	SlowDisk   Kind = "slow disk"  // each access to a disk takes Amount longer
	SlowDisks  Kind = "slow disks" // each access to any disk takes Amount longer, in the whole plan; nothing else fails
	HungDisk   Kind = "hung disk"  // no access to the disk of a member returns, for minutes
	CrawlDisk  Kind = "crawl disk" // each access to a disk takes Amount longer, a hundred times as long as others, for minutes
	Shortage   Kind = "shortage"   // one operation of a member finds no space or no descriptor
	FailCall   Kind = "fail call"  // one write or sync of a member fails; it is killed at the end
	Move       Kind = "move"       // a partition is moved to other members
	Upgrade    Kind = "upgrade"    // a member is stopped in order and started as one of the next release; in such a plan all begin with the former one
	Drain      Kind = "drain"      // a member is drained, and undrained at the end
	Scale      Kind = "scale"      // two of five members are removed at once, or one of three; new ones come at the end
	Clock      Kind = "clock"      // the clock of a member is off by Amount
	Drift      Kind = "drift"      // the clock of a member gains Amount per second
	FlipBits   Kind = "flip bits"  // bits of the files of a member change; its host gets an empty disk in the end, and the member is replaced
	// FlipJournal changes bits of the journal of a member, whose host loses power in the end; the member heals itself.
	FlipJournal Kind = "flip journal"
	LoseDisk    Kind = "lose disk"  // the host of a member gets an empty disk; the member is replaced
	Unreadable  Kind = "unreadable" // every read of one file of a member fails with EIO
	Garble      Kind = "garble"     // bits of what a member exchanges with others in Raft's streams change
	Clocks      Kind = "clocks"     // all clocks together are off by Amount
	RollBack    Kind = "roll back"  // the data folder of a member is replaced by a copy from before its last start; it is replaced
	Clone       Kind = "clone"      // a second process runs on a copy of the data folder of a member, which is replaced
	// Rename: names and keys of the catalog change, and all members, or one if Amount is 1, are killed and started again.
	Rename  Kind = "rename"
	Backlog Kind = "backlog" // messages are sent that nobody receives until the end, see addBacklog
	Restore Kind = "restore" // the cluster is copied, lost after Amount, and restored at the host of a member
)

// Fault is one disturbance. It begins At after the start of the load and ends Length later.
type Fault struct {
	Kind          Kind
	At, Length    time.Duration
	Member, Other int
	Amount        time.Duration
}

// String is the fault as one line of a report.
func (f *Fault) String() string {
	s := fmt.Sprintf("%8.3fs %-10s for %7.3fs member %d", f.At.Seconds(), f.Kind, f.Length.Seconds(), f.Member)
	if f.Other != f.Member {
		s += fmt.Sprintf(", other %d", f.Other)
	}
	if f.Amount != 0 {
		s += fmt.Sprintf(", amount %v", f.Amount)
	}
	return s
}

// Plan is one simulation. Everything of it follows from the seed, the length and the kinds of faults.
type Plan struct {
	Seed                uint64
	Members, Partitions int
	Length              time.Duration // of the load with faults
	Faults              []Fault
	Call                *FailedCall // of the storage-error matrix; nil: none
}

// String is the plan as lines of a report.
func (p *Plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "seed %d: %d members, %d partitions, %v\n", p.Seed, p.Members, p.Partitions, p.Length)
	for i := range p.Faults {
		fmt.Fprintf(&s, "%v\n", &p.Faults[i])
	}
	return s.String()
}

// replicasMax is how many replicas a partition has. With fewer, the loss of one disk may be that of a quorum.
const replicasMax = 3

// KeepsBolt reports whether a member keeps its entries in bolt.
func KeepsBolt(name int) bool { return name%4 == 0 }

// ClockErrorMax is how far the wall time of a partition may be ahead of the median clock of a quorum: what docs/guarantees.md
// promises, and half of the longest round trip by which a clock is read.
const ClockErrorMax = AgreedErrorMax + 250*time.Millisecond/2

// AgreedErrorMax is how far the clocks of a quorum may be from their median.
const AgreedErrorMax = 500 * time.Millisecond

// BadFiles is how many kinds of files a fault Unreadable may choose from.
const BadFiles = 4

// The frequency and the length of faults.
const (
	faultEvery     = 15 * time.Second // on average
	faultLengthMin = 200 * time.Millisecond
	FaultLengthMax = 40 * time.Second // of all but the disks that hang or crawl
	delayMax       = 400 * time.Millisecond
	PaceMax        = 8 * time.Second // for a mebibyte
	clockOffMax    = 2 * time.Hour
	driftMax       = 200 * time.Millisecond
	slowDiskMax    = 100 * time.Millisecond
	slowDisksMax   = 300 * time.Millisecond
	crawlDiskMax   = time.Second
	clocksOffMax   = 30 * time.Second // of all clocks together: what was scheduled waits for as long when they are right again
	BacklogLength  = 2 * time.Minute  // of the slow links while a backlog is copied
	longLengthMax  = 3 * time.Minute  // of the disks that hang or crawl

	// What happens once in a plan at most needs a plan of at least this length, and begins in its first half.
	onceLengthMin = time.Minute
	restoreAfter  = 10 * time.Second       // at most, from the end of the copy to the loss of the cluster
	lagMax        = 10 * time.Second       // of the member that has not the newest entries when another one loses its disk
	LagMargin     = 100 * time.Millisecond // until the lost disk is replaced, when the lag ends
	lagOutage     = 10 * time.Second       // of the members that have them
	copiedMargin  = 5 * time.Second        // without a fault before a data folder is copied
	CopiedWithin  = 30 * time.Second       // until a copied data folder is found
	endDelay      = 2 * time.Second        // of the slow links at the end of a plan
)

// kinds lists the faults that every plan draws from.
var kinds = []Kind{ //nolint:gochecknoglobals // read only
	Kill, Kill, PowerLoss, Blackout, Isolate, Mute, Deafen, CutOne, Halves, Ring, Delay, Delay, Narrow, Reset, Reset, Restart,
	Suspend, Suspend, Standstill, FlipBits, FlipJournal, FullDisk, SlowDisk, HungDisk, CrawlDisk, Shortage, FailCall, Move, Move, Drain, Scale, LoseDisk, Restore, Clock, Drift,
	Unreadable, Garble, Clocks, RollBack, Clone, Rename,
}

// New draws a plan from a seed, with faults of the given kinds; none means the usual ones.
func New(seed uint64, length time.Duration, of ...Kind) Plan {
	r := rand.New(rand.NewPCG(seed, 0x706c616e))
	if len(of) == 0 {
		of = kinds
	}
	p := Plan{Seed: seed, Members: 3 + 2*r.IntN(2), Partitions: 4 + r.IntN(13), Length: length}
	if slices.Contains(of, SlowDisks) {
		p.Faults = []Fault{{Kind: SlowDisks, Length: length, Amount: time.Duration(r.Int64N(int64(slowDisksMax)))}}
		return p
	}
	for at := time.Duration(0); ; {
		at += time.Duration(r.ExpFloat64() * float64(faultEvery))
		if at >= length {
			break
		}
		f := newFault(r, of, at, &p)
		switch {
		case !f.losesData() && f.Kind != Restore:
			p.Faults = append(p.Faults, f)
		case f.losesData() && p.losesData():
		case length >= onceLengthMin && at < length/2 && !p.Has(f.Kind):
			p.addOnce(r, f)
		}
	}
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), p.contradicts)
	p.addCompanions(r)
	if r.IntN(2) == 0 {
		p.addEnd(r)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return p
}

// contradicts reports whether a fault makes something else of the plan unsound. If members are removed, a disk that is
// lost may be needed; and a new member that starts while both the former and the restored cluster run may join either.
func (p *Plan) contradicts(f Fault) bool {
	restored := slices.IndexFunc(p.Faults, func(f Fault) bool { return f.Kind == Restore })
	copied := slices.IndexFunc(p.Faults, func(f Fault) bool { return f.copiesFolder() })
	switch {
	case copied >= 0 && !f.copiesFolder() && p.Faults[copied].mustBeAlone(&f):
		return true
	case f.Kind == Scale && p.losesData():
		return true
	case f.Kind == Scale || f.losesData():
		return restored >= 0 && f.At+f.Length > p.Faults[restored].At
	}
	return false
}

// losesData reports whether a member loses what it has confirmed. Of two at once, nothing can be promised.
func (f *Fault) losesData() bool {
	return f.Kind == LoseDisk || f.Kind == FlipBits || f.Kind == FlipJournal || f.Kind == Unreadable || f.copiesFolder()
}

// copiesFolder reports whether a member has an older data folder for a while, or two processes have one identity.
func (f *Fault) copiesFolder() bool { return f.Kind == RollBack || f.Kind == Clone }

// mustBeAlone reports whether another fault may hide from the members that a data folder was copied: what then happens is not promised.
func (f *Fault) mustBeAlone(other *Fault) bool {
	return other.At < f.At+f.Length+CopiedWithin && other.At+other.Length+copiedMargin > f.At
}

// losesData reports whether a fault of the plan does.
func (p *Plan) losesData() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.losesData() })
}

// Has reports whether the plan has a fault of a kind.
func (p *Plan) Has(k Kind) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == k })
}

// ClockError returns by how much messages may come early because clocks are wrong: 0 if the plan changes none. While the
// clocks of two members are ahead, the median may be the one that is less far ahead: by at most AgreedErrorMax if a right
// clock must confirm it, and by more if the two may confirm each other.
func (p *Plan) ClockError() time.Duration {
	if !p.Has(Clock) && !p.Has(Drift) {
		return 0
	}
	var medianError time.Duration
	for i := range p.Faults {
		for j := range i {
			a, b := &p.Faults[i], &p.Faults[j]
			// Readings count for some seconds more, and for longer if the host of their reader was suspended.
			if a.Member == b.Member || a.At > b.At+b.Length+FaultLengthMax || b.At > a.At+a.Length+FaultLengthMax {
				continue
			}
			fromA, toA := a.clockOffsets()
			fromB, toB := b.clockOffsets()
			ahead := min(toA, toB)
			if fromA > toB+AgreedErrorMax || fromB > toA+AgreedErrorMax {
				ahead = min(ahead, AgreedErrorMax)
			}
			medianError = max(medianError, ahead)
		}
	}
	return ClockErrorMax + medianError
}

// clockOffsets returns the bounds of what a fault adds to the clock of its member.
func (f *Fault) clockOffsets() (from, to time.Duration) {
	if f.Kind == Clock {
		return f.Amount, f.Amount
	}
	if f.Kind != Drift {
		return 0, 0
	}
	gained := time.Duration(f.Amount.Seconds() * float64(f.Length))
	return min(gained, 0), max(gained, 0)
}

// addOnce adds a fault of a kind that a plan has once at most. A disk is lost when another member lags behind and the
// rest is down: what was confirmed must not be lost, although the member with the empty disk and the one that lags
// could elect a leader without it.
func (p *Plan) addOnce(r *rand.Rand, f Fault) {
	if f.Kind != Restore && f.Kind != LoseDisk {
		p.Faults = append(p.Faults, f)
		return
	}
	if f.Kind == Restore {
		f.Length, f.Amount = 0, time.Duration(r.Int64N(int64(restoreAfter)))
		p.Faults = append(p.Faults, f)
		return
	}
	lag := Fault{Kind: Isolate, At: f.At, Length: lagMax/2 + time.Duration(r.Int64N(int64(lagMax/2))), Member: f.Other, Other: f.Member}
	f.At, f.Length = f.At+lag.Length-LagMargin, LagMargin
	p.Faults = append(p.Faults, lag, f)
	for m := range p.Members {
		if m != f.Member && m != f.Other {
			p.Faults = append(p.Faults, Fault{Kind: PowerLoss, At: f.At, Length: lagOutage, Member: m, Other: m})
		}
	}
	if f.Kind == LoseDisk && p.Length-f.At > BacklogLength && r.IntN(2) == 0 {
		p.addBacklog(f)
	}
}

// addBacklog makes the copy that the member with an empty disk needs take minutes: there are many messages, and its links are slow.
func (p *Plan) addBacklog(lost Fault) {
	p.Faults = append(p.Faults,
		Fault{Kind: Backlog, At: time.Second},
		Fault{Kind: Narrow, At: lost.At + lost.Length, Length: BacklogLength, Member: lost.Member, Other: lost.Member, Amount: PaceMax})
}

// addEnd ends the plan with a loss of power, or the end of one process, while messages are on slow links, when clients
// send no more: nothing but the new leaders notices what is in flight.
func (p *Plan) addEnd(r *rand.Rand) {
	for m := range p.Members {
		p.Faults = append(p.Faults, Fault{Kind: Delay, At: p.Length - endDelay, Length: 2 * endDelay, Member: m, Other: m, Amount: delayMax})
	}
	end := Fault{Kind: Blackout, At: p.Length + time.Duration(r.Int64N(int64(endDelay))), Length: endDelay}
	if r.IntN(2) == 0 {
		end.Kind, end.Member = Kill, r.IntN(p.Members)
		end.Other = end.Member
	}
	p.Faults = append(p.Faults, end)
}

func newFault(r *rand.Rand, of []Kind, at time.Duration, p *Plan) Fault {
	f := Fault{Kind: of[r.IntN(len(of))], At: at, Member: r.IntN(p.Members)}
	f.Other = (f.Member + 1 + r.IntN(p.Members-1)) % p.Members
	// Short faults are more frequent than long ones.
	f.Length = faultLengthMin + time.Duration(r.Float64()*r.Float64()*float64(FaultLengthMax-faultLengthMin))
	if f.Kind == HungDisk || f.Kind == CrawlDisk {
		f.Length = time.Duration(r.Float64() * r.Float64() * float64(longLengthMax))
	}
	f.Length = min(f.Length, p.Length-at)
	if f.Kind == FlipJournal && KeepsBolt(f.Member) {
		f.Member, f.Other = 1, 0 // it has a journal
	}
	switch f.Kind { //nolint:exhaustive // the others have no amount
	case SlowDisk:
		f.Amount = time.Duration(r.Int64N(int64(slowDiskMax)))
	case CrawlDisk:
		f.Amount = crawlDiskMax/10 + time.Duration(r.Int64N(int64(crawlDiskMax)))
	case FailCall:
		f.Amount = time.Duration(r.IntN(2))
	case Shortage:
		f.Amount = time.Duration(r.IntN(3))
	case Delay:
		f.Amount = time.Duration(r.Int64N(int64(delayMax)))
	case Narrow:
		f.Amount = time.Duration(r.Int64N(int64(PaceMax)))
	case Unreadable:
		f.Amount = time.Duration(r.IntN(BadFiles))
	case Rename:
		f.Amount = time.Duration(r.IntN(2))
		f.Length = min(f.Length, 10*time.Second)
	case Clocks:
		f.Amount = time.Duration(r.Int64N(2*int64(clocksOffMax))) - clocksOffMax
	case RollBack, Clone:
		f.Length = min(max(f.Length, copiedMargin), 2*copiedMargin)
	case Clock:
		f.Amount = time.Duration(r.Int64N(2*int64(clockOffMax))) - clockOffMax
	case Drift:
		f.Amount = time.Duration(r.Int64N(2*int64(driftMax))) - driftMax
	}
	return f
}
