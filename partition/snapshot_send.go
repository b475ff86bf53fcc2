package partition

import (
	"math"
	"slices"
	"time"
)

// While a snapshot is sent to a replica, new entries are appended, and newer snapshots would delete them from the log. The
// replica would then need entries that the leader no longer has, and get another snapshot: under a steady load, a
// replica of a large partition would never catch up. So the log behind a snapshot is kept while it is sent, and
// for as long again while the replica catches up, as long as this is less to send than the snapshot.
const (
	logKeptMin              = time.Minute // after a send
	snapshotSendsMax        = 64          // that are remembered; more are sent by failing again and again
	logKeptBytesMax         = 4 << 30     // however large the snapshot is: each entry takes 12 bytes of memory, and is read at a start
	logKeptNone      uint64 = math.MaxUint64
)

// snapshotSend is a snapshot that is being sent, or was.
type snapshotSend struct {
	index   uint64
	begun   time.Time
	ended   time.Time // zero while it is being sent
	mostLog uint64    // snapshotStore.logBytes up to which the log is kept
}

// beginSend keeps the log behind the snapshot. endSend must follow.
func (s *snapshotStore) beginSend(snap *storedSnapshot) *snapshotSend {
	send := &snapshotSend{index: snap.Index, begun: time.Now(), mostLog: s.logBytes() + uint64(min(snap.meta().Size, logKeptBytesMax))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sends) >= snapshotSendsMax {
		// Few are being sent: raft sends one to each replica at a time.
		oldest := max(0, slices.IndexFunc(s.sends, func(old *snapshotSend) bool { return !old.ended.IsZero() }))
		s.sends = slices.Delete(s.sends, oldest, oldest+1)
	}
	s.sends = append(s.sends, send)
	return send
}

// endSend notes that the send has ended. The log is kept for as long again, and logKeptMin at least.
func (s *snapshotStore) endSend(send *snapshotSend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	send.ended = time.Now()
}

// logKeptFrom returns the index from which on the log is kept for replicas that get a snapshot, logKeptNone for none.
func (s *snapshotStore) logKeptFrom(now time.Time) uint64 {
	total := s.logBytes()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sends = slices.DeleteFunc(s.sends, func(send *snapshotSend) bool {
		return total > send.mostLog || !send.ended.IsZero() && now.Sub(send.ended) > max(logKeptMin, send.ended.Sub(send.begun))
	})
	from := logKeptNone
	for _, send := range s.sends {
		from = min(from, send.index) // raft asks for the term of the entry before those that it sends
	}
	return from
}

// logKeptFrom returns the index from which on the log must not be deleted yet, logKeptNone for none. A member that is
// short of disk space keeps nothing.
func (g *Group) logKeptFrom() uint64 {
	if g.cfg.Log.Disk().IsReadOnly() {
		return logKeptNone
	}
	return g.snapshots.logKeptFrom(time.Now())
}
