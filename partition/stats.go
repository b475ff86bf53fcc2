package partition

import (
	"math/bits"
	"os"
	"sync/atomic"
	"time"
)

// The buckets of a histogram: bucket i counts durations up to histogramFirst << i, that is 250 us to 8.2 s,
// and one more bucket counts the rest.
const (
	histogramFirst   = 250 * time.Microsecond
	histogramBuckets = 16
)

// Histogram counts durations. Its zero value is ready to use. It may be used concurrently and costs two
// atomic additions for each observation.
type Histogram struct {
	counts [histogramBuckets + 1]atomic.Uint64
	nanos  atomic.Int64
}

// Observe counts one duration.
func (h *Histogram) Observe(took time.Duration) {
	took = max(took, 0)
	i := 0
	if took > 0 {
		i = min(bits.Len64(uint64((took-1)/histogramFirst)), histogramBuckets)
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(took))
}

// Durations is a snapshot of a histogram.
type Durations struct {
	// Within[i] counts durations up to Bound(i); the counts are cumulative.
	Within [histogramBuckets]uint64
	Count  uint64 // of all durations
	Sum    time.Duration
}

// Bound returns the upper end of bucket i.
func Bound(i int) time.Duration { return histogramFirst << i }

// Durations returns a snapshot of the histogram. Concurrent observations may or may not be included.
func (h *Histogram) Durations() Durations {
	d := Durations{Sum: time.Duration(h.nanos.Load())}
	for i := range h.counts {
		d.Count += h.counts[i].Load()
		if i < histogramBuckets {
			d.Within[i] = d.Count
		}
	}
	return d
}

// counters are the counters of a group, updated per entry and per batch, never per message.
type counters struct {
	entries     atomic.Uint64 // applied
	commands    atomic.Uint64 // in them
	refused     atomic.Uint64 // submissions over a limit
	leaderships atomic.Uint64 // leaderships gained
	exceeded    atomic.Uint64 // rules that were over their budget
	proposals   Histogram     // from composing an entry to applying it, at the leader
}

// Stats are the counters of a replica since it was opened and its size on disk, for dashboards and alerts.
type Stats struct {
	Entries           uint64    // applied
	Commands          uint64    // in them
	Refused           uint64    // submissions refused because a queue was full
	Exceeded          uint64    // evaluations of a topic's rule that exceeded the steps allowed for one message
	LeadershipsGained uint64    // times that this replica became the leader
	Proposals         Durations // of entries proposed here, from composing to applied
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
}

// Stats returns the counters. It reads the time of one file.
func (g *Group) Stats() Stats {
	f := Stats{
		Entries: g.counts.entries.Load(), Commands: g.counts.commands.Load(),
		Refused: g.counts.refused.Load(), Exceeded: g.counts.exceeded.Load(), LeadershipsGained: g.counts.leaderships.Load(),
		Proposals: g.counts.proposals.Durations(),
		LogBytes:  g.snapshotter.total.Load() - min(g.snapshotter.totalAtSnapshot.Load(), g.snapshotter.total.Load()),
	}
	g.bodies.mu.Lock()
	f.Segments = len(g.bodies.segments) + len(g.bodies.deleting)
	g.bodies.mu.Unlock()
	g.snapshots.mu.Lock()
	f.Snapshots = g.snapshots.serial
	newest := g.snapshots.newest
	g.snapshots.mu.Unlock()
	if newest != nil {
		f.SnapshotBytes = newest.ImageBytes
		if info, err := os.Stat(newest.dir); err == nil { // it may have been replaced meanwhile
			f.SnapshotAt = info.ModTime()
		}
	}
	return f
}
