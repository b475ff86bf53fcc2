package partition

import (
	"log/slog"
	"time"
)

// slowEntry is an entry of this leader that took long, as times.
type slowEntry struct {
	waitingSince time.Time // its oldest command came
	composed     time.Time
	taken        time.Time // by raft's main goroutine; zero when the quorum was faster than we came to note it
	began        time.Time // to be applied: it is committed
	applied      time.Time
	commands     int
}

// slowClock reads the clock, if anybody wants to know what is slow: a few times per entry, never per
// command.
func (g *Group) slowClock() time.Time {
	if g.cfg.SlowAfter <= 0 {
		return time.Time{}
	}
	return time.Now()
}

// logSlowEntry says where the time of an entry went. queued is what the oldest command waited for its entry
// (others are in flight, or the leader is full), raft until raft's main goroutine took it (it writes
// others), quorum until it was committed (our disk, the network, the followers' disks),
// applied the machine and the bodies of messages.
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

// logSlowRead says how long bodies waited to be read from the disk, and the reading.
func (g *Group) logSlowRead(j readJob, began time.Time) {
	if g.cfg.SlowLogger == nil || j.queuedAt.IsZero() || time.Since(j.queuedAt) < g.cfg.SlowAfter {
		return
	}
	g.cfg.SlowLogger.Warn("slow operation",
		slog.String("operation", "read bodies"), slog.Uint64("partition", uint64(g.cfg.ID)),
		slog.Duration("took", time.Since(j.queuedAt)), slog.Duration("queued", began.Sub(j.queuedAt)),
		slog.Int("messages", len(j.result.Deliveries)), slog.Int64("bytes", j.bytes))
}
