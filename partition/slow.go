package partition

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// entryTimes are the times at which an entry of this leader reached its stages.
type entryTimes struct {
	waitingSince time.Time // its oldest command was submitted
	composed     time.Time
	taken        time.Time // by raft's main goroutine; zero when the entry was committed before the time was recorded
	began        time.Time // apply began, so it was committed
	applied      time.Time
}

// Stages are the times that entries spent in each stage at their leader.
type Stages struct {
	Queued  time.Duration // the oldest command waited for an entry: others were in flight, or the leader was full
	Raft    time.Duration // the entry waited for raft's main goroutine, which was writing others
	Quorum  time.Duration // until it was committed: the disk here, the network, the disks of followers
	Applied time.Duration // the machine and the writing of bodies
}

func (e *entryTimes) stages() Stages {
	taken := e.taken
	if taken.IsZero() || taken.After(e.began) {
		taken = e.began
	}
	return Stages{e.composed.Sub(e.waitingSince), taken.Sub(e.composed), e.began.Sub(taken), e.applied.Sub(e.began)}
}

// stageCounters add Stages up. Their zero value is ready to use.
type stageCounters struct{ queued, raft, quorum, applied atomic.Int64 }

func (c *stageCounters) add(s Stages) {
	c.queued.Add(int64(s.Queued))
	c.raft.Add(int64(s.Raft))
	c.quorum.Add(int64(s.Quorum))
	c.applied.Add(int64(s.Applied))
}

func (c *stageCounters) sums() Stages {
	return Stages{time.Duration(c.queued.Load()), time.Duration(c.raft.Load()), time.Duration(c.quorum.Load()), time.Duration(c.applied.Load())}
}

// slowEntry is an entry that took long.
type slowEntry struct {
	took     time.Duration
	stages   Stages
	commands int
}

// logSlowEntry logs the time of each stage of an entry.
func (c *Config) logSlowEntry(e slowEntry) {
	if c.SlowLogger == nil {
		return
	}
	c.SlowLogger.Warn("slow operation",
		slog.String("operation", "log entry"), slog.Uint64("partition", uint64(c.ID)),
		slog.Duration("took", e.took), slog.Duration("queued", e.stages.Queued), slog.Duration("raft", e.stages.Raft),
		slog.Duration("quorum", e.stages.Quorum), slog.Duration("applied", e.stages.Applied), slog.Int("commands", e.commands))
}
