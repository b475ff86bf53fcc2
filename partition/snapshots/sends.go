package snapshots

import (
	"math"
	"slices"
	"sync"
	"time"
)

// While a snapshot is sent to a replica, new entries are appended, and newer snapshots would delete them from the log. The
// replica would then need entries that the leader no longer has, and get another snapshot: under a steady load, a
// replica of a large partition would never catch up. So the log behind a snapshot is kept while it is sent, and
// for as long again while the replica catches up, as long as this is less to send than the snapshot.
const (
	logKeptMin       = time.Minute // after a send
	snapshotSendsMax = 64          // that are remembered; more are sent by failing again and again
	logKeptBytesMax  = 4 << 30     // however large the snapshot is: each entry takes 12 bytes of memory, and is read at a start
)

// LogKeptNone is the index from which on the log is kept when none is.
const LogKeptNone uint64 = math.MaxUint64

// snapshotSend is a snapshot that is being sent, or was.
type snapshotSend struct {
	index   uint64
	begun   time.Time
	ended   time.Time // zero while it is being sent
	mostLog uint64    // bytes of log applied, up to which the log is kept
}

// snapshotSends are the snapshots that are being sent to other replicas, or were. They may be used concurrently.
type snapshotSends struct {
	mu   sync.Mutex
	list []*snapshotSend
}

// begin keeps the log behind a snapshot that ends at index and has size bytes, when total bytes of log were applied. end
// must follow.
func (s *snapshotSends) begin(index, total uint64, size int64) *snapshotSend {
	send := &snapshotSend{index: index, begun: time.Now(), mostLog: total + uint64(min(size, logKeptBytesMax))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= snapshotSendsMax {
		// Few are being sent: raft sends one to each replica at a time.
		oldest := max(0, slices.IndexFunc(s.list, func(old *snapshotSend) bool { return !old.ended.IsZero() }))
		s.list = slices.Delete(s.list, oldest, oldest+1)
	}
	s.list = append(s.list, send)
	return send
}

// end notes that the send has ended. The log is kept for as long again, and logKeptMin at least.
func (s *snapshotSends) end(send *snapshotSend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	send.ended = time.Now()
}

// logKeptFrom returns the index from which on the log is kept. total bytes of log were applied.
func (s *snapshotSends) logKeptFrom(now time.Time, total uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(send *snapshotSend) bool {
		return total > send.mostLog || !send.ended.IsZero() && now.Sub(send.ended) > max(logKeptMin, send.ended.Sub(send.begun))
	})
	from := LogKeptNone
	for _, send := range s.list {
		from = min(from, send.index) // raft asks for the term of the entry before those that it sends
	}
	return from
}
