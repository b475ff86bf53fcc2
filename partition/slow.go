package partition

import (
	"log/slog"
	"time"
)

// slowEntry holds the times of the stages of an entry that took long at this leader.
type slowEntry struct {
	waitingSince time.Time // its oldest command was submitted
	composed     time.Time
	taken        time.Time // by raft's main goroutine; zero when the entry was committed before the time was recorded
	began        time.Time // apply began, so it was committed
	applied      time.Time
	commands     int
}

// slowClock reads the clock if slow operations are logged: a few times per entry, never per command.
func (g *Group) slowClock() time.Time {
	if g.cfg.SlowAfter <= 0 {
		return time.Time{}
	}
	return time.Now()
}

// logSlowEntry logs the time of each stage of an entry. queued: its oldest command waited for an entry,
// because others were in flight or the leader was full; raft: the entry waited for raft's main goroutine,
// which was writing others; quorum: until it was committed (the disk here, the network, the followers'
// disks); applied: the machine and the writing of bodies.
func (g *Group) logSlowEntry(e slowEntry) {
	if g.cfg.SlowLogger == nil {
		return
	}
	if e.taken.IsZero() || e.taken.After(e.began) {
		e.taken = e.began
	}
	g.cfg.SlowLogger.Warn("slow operation",
		slog.String("operation", "log entry"), slog.Uint64("partition", uint64(g.cfg.ID)),
		slog.Duration("took", e.applied.Sub(e.waitingSince)), slog.Duration("queued", e.composed.Sub(e.waitingSince)),
		slog.Duration("raft", e.taken.Sub(e.composed)), slog.Duration("quorum", e.began.Sub(e.taken)),
		slog.Duration("applied", e.applied.Sub(e.began)), slog.Int("commands", e.commands))
}

// logSlowRead logs the time that a read of bodies waited, and the time of the read.
func (g *Group) logSlowRead(j readJob, began time.Time) {
	if g.cfg.SlowLogger == nil || j.queuedAt.IsZero() || time.Since(j.queuedAt) < g.cfg.SlowAfter {
		return
	}
	g.cfg.SlowLogger.Warn("slow operation",
		slog.String("operation", "read bodies"), slog.Uint64("partition", uint64(g.cfg.ID)),
		slog.Duration("took", time.Since(j.queuedAt)), slog.Duration("queued", began.Sub(j.queuedAt)),
		slog.Int("messages", len(j.result.Deliveries)), slog.Int64("bytes", j.bytes))
}
