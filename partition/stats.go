package partition

import (
	"math/bits"
	"os"
	"sync/atomic"
	"time"
)

// The buckets of a histogram: bucket i counts what took up to histogramFirst << i, and the
// one behind them the rest, so 250 us to 8.2 s.
const (
	histogramFirst   = 250 * time.Microsecond
	histogramBuckets = 16
)

// Histogram counts how long things took. Its zero value is ready; it may be used by any
// number of goroutines and costs two atomic additions each time.
type Histogram struct {
	counts [histogramBuckets + 1]atomic.Uint64
	nanos  atomic.Int64
}

// Observe counts one.
func (h *Histogram) Observe(took time.Duration) {
	took = max(took, 0)
	i := 0
	if took > 0 {
		i = min(bits.Len64(uint64((took-1)/histogramFirst)), histogramBuckets)
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(took))
}

// Durations is a histogram at one moment.
type Durations struct {
	// Within[i] counts what took up to Bound(i), the counts before it included.
	Within [histogramBuckets]uint64
	Count  uint64 // all
	Sum    time.Duration
}

// Bound is the upper end of bucket i.
func Bound(i int) time.Duration { return histogramFirst << i }

// Durations reads the histogram. What is counted meanwhile may be in it or not.
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

// counters are what a group counts while it works: per entry and per batch, never per message.
type counters struct {
	entries     atomic.Uint64 // applied
	commands    atomic.Uint64 // in them
	refused     atomic.Uint64 // submissions over a limit
	leaderships atomic.Uint64 // leaderships gained
	exceeded    atomic.Uint64 // rules that were over their budget
	proposals   Histogram     // from composing an entry to its being applied here, at the leader
}

// Stats is what a replica has done since it was opened, and how large it is on disk, for
// pictures and alarms.
type Stats struct {
	Entries           uint64    // applied
	Commands          uint64    // in them
	Refused           uint64    // submissions refused because too much was waiting
	Exceeded          uint64    // times that a rule of a topic took more steps than it may for one message
	LeadershipsGained uint64    // times that it became the leader
	Proposals         Durations // of entries of ours: from composing to applied
	// LogBytes is what was applied since the newest snapshot was frozen: what a restart
	// replays, about.
	LogBytes uint64
	Segments int // files of bodies
	// Snapshots is the number of the newest snapshot: it rises with each, also over restarts.
	// SnapshotAt and SnapshotBytes are of the newest one, without the bodies; zero when there is none.
	Snapshots     uint64
	SnapshotAt    time.Time
	SnapshotBytes int64
}

// Stats returns what is counted. It reads the time of one file.
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
		if info, err := os.Stat(newest.dir); err == nil { // it may be replaced just now
			f.SnapshotAt = info.ModTime()
		}
	}
	return f
}
