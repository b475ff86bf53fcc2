package slowdisk

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

const (
	checkInterval    = 100 * time.Millisecond // between two checks, which read memory only
	askInterval      = time.Second            // between two questions of a group to the other voters
	askTimeout       = 500 * time.Millisecond
	slowFor          = 5 * time.Second  // for which the median must be high, and others must be well in comparison
	unknownFor       = 10 * time.Second // after the start, in which a member that has no median yet is not known to be well
	handOverInterval = 30 * time.Second // between two hand-overs of a group
	electedWithin    = 2 * time.Second  // after the successor was asked to campaign
	pollInterval     = 10 * time.Millisecond
)

// Config is what a Monitor needs.
type Config struct {
	Self    fsm.MemberID
	Latency func() partition.LogLatency // of the log of this member
	// Groups returns the open replicas of this member.
	Groups func() map[fsm.PartitionID]*partition.Group
	// Status asks another member for the status of its replica.
	Status func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID) (raftgroup.Status, error)
	// Accepts reports whether a member may get leaderships.
	Accepts func(fsm.MemberID) bool
	Go      func(task func(ctx context.Context)) bool // runs a task until the member closes, false while it closes
	Logger  *slog.Logger
}

// Stats are statistics of a Monitor.
type Stats struct {
	Slow      bool   // the disk of this member is slow
	Stuck     int    // leaderships that stay on the slow disk, because too few other voters have answered that theirs is well
	HandOvers uint64 // leaderships that other members have taken over since the start
}

// Monitor watches the disk of a member. Its methods may be called concurrently.
type Monitor struct {
	Config

	started   time.Time
	highSince time.Time // when the median became high, zero while it is not; of Run
	slow      atomic.Bool
	reluctant atomic.Bool
	handOvers atomic.Uint64

	mu     sync.Mutex
	groups map[fsm.PartitionID]*groupState
}

// groupState is what a Monitor remembers of a group while the disk is slow.
type groupState struct {
	asked      time.Time // when the other voters were asked last
	wellSince  time.Time // since when enough of them have been well, zero while they are not
	handedOver time.Time
	stuck      bool
}

// New returns a Monitor. Run runs it.
func New(config *Config) *Monitor {
	return &Monitor{Config: *config, started: time.Now(), groups: make(map[fsm.PartitionID]*groupState)}
}

// IsReluctant reports whether the replicas of this member leave elections to others: its disk is slow, and a quorum of other voters
// have answered that theirs are well.
func (k *Monitor) IsReluctant() bool { return k.reluctant.Load() }

// Stats returns the statistics.
func (k *Monitor) Stats() Stats {
	s := Stats{Slow: k.slow.Load(), HandOvers: k.handOvers.Load()}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, of := range k.groups {
		if of.stuck {
			s.Stuck++
		}
	}
	return s
}

// Run watches the disk until ctx ends.
func (k *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			k.check(ctx, now)
		}
	}
}

// isSlow reports whether the disk is slow by its own measure.
func (k *Monitor) isSlow(now time.Time, disk partition.LogLatency) bool {
	switch {
	case disk.Median <= raftgroup.WriteMedianMax:
		k.highSince = time.Time{}
	case k.highSince.IsZero():
		k.highSince = now
	}
	return disk.Oldest > raftgroup.OldestWriteMax || !k.highSince.IsZero() && now.Sub(k.highSince) >= slowFor
}

func (k *Monitor) check(ctx context.Context, now time.Time) {
	disk := k.Latency()
	slow := k.isSlow(now, disk)
	if was := k.slow.Swap(slow); slow != was {
		latency := []any{"oldest_write", disk.Oldest, "median_write", disk.Median}
		if slow {
			k.Logger.WarnContext(ctx, "disk became slow", latency...)
		} else {
			k.Logger.InfoContext(ctx, "disk became fast again", latency...)
		}
	}
	if !slow {
		k.reluctant.Store(false)
		k.forget(now)
		return
	}
	groups := k.Groups()
	k.forgetAllBut(groups)
	for id, group := range groups {
		status := group.Status()
		if len(status.Voters) < 2 || status.Halted != nil {
			k.forgetGroup(id)
			continue
		}
		if of := k.state(id); now.Sub(of.asked) >= askInterval {
			of.asked = now
			k.Go(func(ctx context.Context) { k.checkGroup(ctx, group, &status, of) })
		}
	}
}

// state returns the state of a group. Its field asked is of Run.
func (k *Monitor) state(id fsm.PartitionID) *groupState {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.groups[id] == nil {
		k.groups[id] = new(groupState)
	}
	return k.groups[id]
}

// forgetAllBut drops the states of groups that have left this member.
func (k *Monitor) forgetAllBut(groups map[fsm.PartitionID]*partition.Group) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.groups, func(id fsm.PartitionID, _ *groupState) bool { return groups[id] == nil })
}

// forgetGroup drops the state of a group that has nowhere to go.
func (k *Monitor) forgetGroup(id fsm.PartitionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, id)
}

// forget drops the states of groups that may be handed over again.
func (k *Monitor) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, of := range k.groups {
		if of.stuck = false; now.Sub(of.handedOver) >= handOverInterval {
			delete(k.groups, id)
		}
	}
}

// checkGroup asks the other voters of a group for their disks, and hands the group over if it is led here.
func (k *Monitor) checkGroup(ctx context.Context, group *partition.Group, status *partition.Status, of *groupState) {
	well := k.askVoters(ctx, status)
	enough := len(well) >= len(status.Voters)/2+1
	if enough {
		k.reluctant.Store(k.slow.Load())
	}
	k.mu.Lock()
	due := of.isClear(time.Now(), enough, status.Latency.Oldest) && status.IsLeader && time.Since(of.handedOver) >= handOverInterval
	of.stuck = status.IsLeader && !enough
	if due {
		of.handedOver = time.Now()
	}
	k.mu.Unlock()
	if due {
		k.handOver(ctx, group, status, well)
	}
}

// isClear records whether enough other voters are well now, and reports whether the group should move: at once when a write here does
// not return, and otherwise when they have been well for slowFor, because of disks that become fast together, one has a low median first.
func (of *groupState) isClear(now time.Time, enough bool, oldest time.Duration) bool {
	switch {
	case !enough:
		of.wellSince = time.Time{}
	case of.wellSince.IsZero():
		of.wellSince = now
	}
	return enough && (oldest > raftgroup.OldestWriteMax || now.Sub(of.wellSince) >= slowFor)
}

// askVoters asks the other voters concurrently, and returns those whose disk is well.
func (k *Monitor) askVoters(ctx context.Context, status *partition.Status) map[fsm.MemberID]raftgroup.Status {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	well := make(map[fsm.MemberID]raftgroup.Status)
	own := raftgroup.Status{OldestWrite: status.Latency.Oldest, WriteMedian: status.Latency.Median}
	for _, v := range status.Voters {
		if v.Member == k.Self {
			continue
		}
		asking.Go(func() {
			theirs, err := k.Status(ctx, v.Member, status.ID)
			if err != nil || theirs.Replica != v.Replica || !k.isWell(&theirs, &own) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			well[v.Member] = theirs
		})
	}
	asking.Wait()
	return well
}

// isWell reports whether the disk of another member is well, compared with the disk here. All members begin their files at their
// first start: where all disks are slow, the first writes take longer than a second, and none has a median to compare with. And where
// all disks become slow at once, the medians are those of before, but the others have old writes too.
func (k *Monitor) isWell(theirs, own *raftgroup.Status) bool {
	if theirs.Halted || theirs.HasSlowDisk(0) || theirs.WriteMedian == 0 && time.Since(k.started) < unknownFor {
		return false
	}
	if own.OldestWrite > raftgroup.OldestWriteMax {
		return own.IsHung(max(theirs.WriteMedian, theirs.OldestWrite))
	}
	return own.HasSlowDisk(theirs.WriteMedian)
}

// handOver lets the voter with the longest log campaign, and ends the leadership here when it leads.
func (k *Monitor) handOver(ctx context.Context, group *partition.Group, status *partition.Status, well map[fsm.MemberID]raftgroup.Status) {
	var to fsm.MemberID
	for member, theirs := range well {
		if k.Accepts(member) && (to == "" || theirs.Last > well[to].Last) {
			to = member
		}
	}
	if to == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, electedWithin)
	defer cancel()
	if err := group.HandOver(ctx, to); err != nil {
		k.Logger.WarnContext(ctx, "failed to move a leadership away from a slow disk, will retry", "partition", status.ID, "peer", to, "error", err)
		return
	}
	for ctx.Err() == nil {
		for member := range well { // another one may have won, with a longer log
			theirs, err := k.Status(ctx, member, status.ID)
			if err != nil || !theirs.IsLeader || theirs.Term <= status.Term {
				continue
			}
			group.Supersede(theirs.Term)
			k.handOvers.Add(1)
			k.Logger.WarnContext(ctx, "leadership was moved away from a slow disk", "partition", status.ID, "peer", member, "term", theirs.Term)
			return
		}
		notify.Pause(ctx, pollInterval)
	}
}
