package transport

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errOlderTerm  = errors.New("the snapshot is of an older term than this replica, or than one that is being received")
	errSuperseded = errors.New("replaced by a newer snapshot")
	errClosed     = errors.New("the raft instance is closed")
)

// receptions holds the reception of a snapshot: there is one at a time.
type receptions struct {
	running sync.WaitGroup

	mu  sync.Mutex
	now *reception // nil: none
}

// begin waits until no other snapshot is being received. A sender of an older term is refused; one of the same or a
// later term is served in place of the other: that one was given up by its leader, or its leader was replaced.
func (rs *receptions) begin(r *reception, closed <-chan struct{}) error {
	for {
		rs.mu.Lock()
		other := rs.now
		if other == nil {
			rs.now = r
			rs.mu.Unlock()
			return nil
		}
		rs.mu.Unlock()
		if other.term > r.term {
			return errOlderTerm
		}
		other.superseded.Store(true)
		select {
		case <-other.ended:
		case <-closed:
			return errClosed
		}
	}
}

func (rs *receptions) end(r *reception) {
	rs.mu.Lock()
	rs.now = nil
	rs.mu.Unlock()
	close(r.ended)
}

// reception is one snapshot that is being received.
type reception struct {
	from       io.Reader
	term       uint64
	superseded atomic.Bool
	waiting    atomic.Int64 // since when it waits for bytes, in ns since 1970; 0: it does not
	ended      chan struct{}
}

// Read implements io.Reader.
func (r *reception) Read(b []byte) (int, error) {
	r.waiting.Store(time.Now().UnixNano())
	n, err := r.from.Read(b)
	r.waiting.Store(0)
	if err == nil && r.superseded.Load() {
		err = errSuperseded
	}
	return n, err
}
