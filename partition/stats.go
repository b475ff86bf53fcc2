package partition

import (
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/partition/histogram"
)

// counters are the counters of a group, updated per entry and per batch, never per message.
type counters struct {
	entries     atomic.Uint64       // applied
	commands    atomic.Uint64       // in them
	refused     atomic.Uint64       // submissions over a limit
	leaderships atomic.Uint64       // leaderships gained
	exceeded    atomic.Uint64       // rules that were over their budget
	proposals   histogram.Histogram // from composing an entry to applying it, at the leader
	stages      stageCounters       // of the same entries
}

// Stats are the counters of a replica since it was opened and its size on disk, for dashboards and alerts.
type Stats struct {
	Entries           uint64              // applied
	Commands          uint64              // in them
	Refused           uint64              // submissions refused because a queue was full
	Exceeded          uint64              // evaluations of a topic's rule that exceeded the steps allowed for one message
	LeadershipsGained uint64              // times that this replica became the leader
	Proposals         histogram.Durations // of entries proposed here, from composing to applied
	Stages            Stages              // sums over the same entries
	// LogBytes are the bytes of log applied since the newest snapshot was frozen: about what a restart
	// replays.
	LogBytes uint64
	Segments int // segment files
	// Snapshots is the serial number of the newest snapshot; it rises with each snapshot, also across
	// restarts. SnapshotAt and SnapshotBytes, without bodies, describe the newest snapshot; they are zero
	// when there is none.
	Snapshots     uint64
	SnapshotAt    time.Time
	SnapshotBytes int64
	// SnapshotChecks counts the snapshots that this replica has checked after it had written them, SnapshotChecksFailed those that cannot be
	// loaded, also at an opening, SnapshotChecksSkipped those that did not fit into memory and were decoded as a stream, and
	// SnapshotChecksUnprotected those whose predecessor was deleted before they had passed, because the log behind it exceeded its bound.
	SnapshotChecks, SnapshotChecksFailed, SnapshotChecksSkipped, SnapshotChecksUnprotected uint64
	// Ahead is by how much the wall time of the newest applied entry is ahead of the clocks: nothing expires or
	// becomes active before they have passed it.
	Ahead time.Duration
}

// Stats returns the counters. It reads the time of one file.
func (g *Group) Stats() Stats {
	f := Stats{
		Entries: g.counts.entries.Load(), Commands: g.counts.commands.Load(),
		Refused: g.counts.refused.Load(), Exceeded: g.counts.exceeded.Load(), LeadershipsGained: g.counts.leaderships.Load(),
		Proposals: g.counts.proposals.Durations(), Stages: g.counts.stages.sums(),
		LogBytes: g.snapshotter.total.Load() - min(g.snapshotter.totalAtSnapshot.Load(), g.snapshotter.total.Load()),
	}
	f.Segments, f.Ahead = g.bodies.SegmentCount(), g.timeAhead()
	checks := &g.snapshotter.checks
	f.SnapshotChecks, f.SnapshotChecksFailed = checks.done.Load(), checks.failures.Load()
	f.SnapshotChecksSkipped, f.SnapshotChecksUnprotected = checks.skipped.Load(), checks.unprotected.Load()
	newest, serial := g.snapshots.Newest()
	f.Snapshots = serial
	if newest != nil {
		f.SnapshotBytes, f.SnapshotAt = newest.ImageBytes, newest.WrittenAt()
	}
	return f
}
