package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

const (
	// digestVersion says how digests are made. Those of different versions say nothing about
	// each other.
	digestVersion = 1
	// checkpointEntries lie between two checkpoints, by index.
	checkpointEntries = 4096
	// digestEpochEntries is after how many entries, by index, a digest begins anew: a replica
	// that does not know how it began, after an upgrade, can be compared again from there.
	digestEpochEntries = 16 * checkpointEntries
	checkpointsMax     = 64 // kept, the newest
)

// ErrDiverged says that a replica has applied something else than the majority, or that the
// same did something else to it.
var ErrDiverged = errors.New("replica differs from the majority")

// Checkpoint is what a replica had applied up to an index that all replicas stop at, in one
// number: the bytes of every entry and what came of each command, one on top of the other.
// Where it differs, replicas differ, at that index or before.
type Checkpoint struct {
	Index   uint64 `json:"Index"` // everything up to it counts
	Term    uint64 `json:"Term"`  // of the last entry of it that was applied
	Digest  uint64 `json:"Digest"`
	Version uint8  `json:"Version"` // only digests of one version can be compared
}

// rollingDigest is the rolling digest of a replica. Who holds the machine calls it.
//
// Entries that no machine sees (raft's own) take part by their absence: a checkpoint at
// 4096 is made when the first entry behind 4096 is applied.
type rollingDigest struct {
	sum   uint64
	known bool // from its beginning, or from a snapshot
	term  uint64
	buf   []byte

	mu          sync.Mutex
	checkpoints []Checkpoint // oldest first
}

// checkpoint is called ahead of the entry at index, previous being the one applied last.
func (c *rollingDigest) checkpoint(previous, index uint64) {
	stage := func(i, every uint64) uint64 { return (max(i, 1) - 1) / every }
	if at := stage(index, checkpointEntries); at > stage(previous, checkpointEntries) && c.known {
		c.addCheckpoint(Checkpoint{Index: at * checkpointEntries, Term: c.term, Digest: c.sum, Version: digestVersion})
	}
	if epoch := stage(index, digestEpochEntries); previous == 0 || epoch > stage(previous, digestEpochEntries) {
		c.sum, c.known = epoch, true
	}
}

func (c *rollingDigest) addCheckpoint(p Checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.checkpoints) >= checkpointsMax {
		c.checkpoints = slices.Delete(c.checkpoints, 0, len(c.checkpoints)-checkpointsMax+1)
	}
	c.checkpoints = append(c.checkpoints, p)
}

// beginEntry starts an entry.
func (c *rollingDigest) beginEntry(e *raft.Log) {
	b := binary.LittleEndian.AppendUint64(c.buf[:0], c.sum)
	b = binary.LittleEndian.AppendUint64(b, e.Index)
	b = binary.LittleEndian.AppendUint64(b, e.Term)
	c.buf = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(e.Data))
	c.term = e.Term
}

// addResult adds what came of a command. Where bodies lie is each replica's own business, and
// what they are is in the entry that brought them.
func (c *rollingDigest) addResult(r *fsm.Result) {
	b := append(c.buf, byte(len(r.Deliveries)), byte(len(r.Codes)), byte(len(r.Untils)), byte(len(r.Sequences)))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Code))
	for _, v := range [...]uint64{
		uint64(r.Sequence), uint64(r.Entity), uint64(r.Namespace), r.Version, r.Count, r.Serial,
		uint64(r.To.Partition), uint64(r.To.Entity), r.Session.Epoch,
	} {
		b = binary.AppendUvarint(b, v)
	}
	b = append(b, r.Session.ID...)
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		for _, v := range [...]uint64{
			uint64(d.Lock.Sequence), uint64(d.Lock.Epoch), uint64(d.State), uint64(d.FailedDeliveries),
			uint64(d.Enqueued), uint64(d.LockedUntil), uint64(d.Expires), uint64(d.Body.Size), uint64(d.Topic),
		} {
			b = binary.AppendUvarint(b, v)
		}
	}
	for _, code := range r.Codes {
		b = binary.AppendUvarint(b, uint64(code))
	}
	for _, until := range r.Untils {
		b = binary.AppendUvarint(b, uint64(until))
	}
	for _, n := range r.Sequences {
		b = binary.AppendUvarint(b, uint64(n))
	}
	c.buf = b
}

// endEntry ends an entry.
func (c *rollingDigest) endEntry() { c.sum = xxhash.Sum64(c.buf) }

// restore takes the digest that came with a snapshot; version 0 says that it had none.
func (c *rollingDigest) restore(sum uint64, version uint8, term uint64) {
	c.sum, c.known, c.term = sum, version == digestVersion, term
}

// export returns what goes with a snapshot.
func (c *rollingDigest) export() (sum uint64, version uint8) {
	if !c.known {
		return 0, 0
	}
	return c.sum, digestVersion
}

// Checkpoints returns the newest checkpoints of this replica, oldest first: one every 4096
// entries, at most 64. A replica that came up from an older release has none for a while.
func (g *Group) Checkpoints() []Checkpoint {
	g.rolling.mu.Lock()
	defer g.rolling.mu.Unlock()
	return slices.Clone(g.rolling.checkpoints)
}

// Difference is what Compare found. The zero value says that there is none.
type Difference struct {
	Index uint64 // of the first checkpoint that differs
	// Majority is what more than half of all replicas have there; its Index is 0 when no
	// value has a majority, and then nobody can be told to be wrong.
	Majority Checkpoint
	Outliers []string // replicas that have something else, sorted
}

// CompareCheckpoints looks for the first index at which replicas differ. of has the checkpoints of each
// voter that answered, by the name of its replica; voters is how many there are in all.
func CompareCheckpoints(of map[string][]Checkpoint, voters int) Difference {
	at := make(map[uint64]map[string]Checkpoint)
	for replica, list := range of {
		for _, p := range list {
			if p.Version != digestVersion {
				continue
			}
			if at[p.Index] == nil {
				at[p.Index] = make(map[string]Checkpoint)
			}
			at[p.Index][replica] = p
		}
	}
	var found Difference
	for index, points := range at {
		votes := make(map[Checkpoint]int)
		for _, p := range points {
			votes[p]++
		}
		if len(votes) < 2 || found.Index != 0 && found.Index < index {
			continue
		}
		found = Difference{Index: index}
		for p, n := range votes {
			if n > voters/2 {
				found.Majority = p
			}
		}
		for replica, p := range points {
			if found.Majority.Index != 0 && p != found.Majority {
				found.Outliers = append(found.Outliers, replica)
			}
		}
		slices.Sort(found.Outliers)
	}
	return found
}

// HaltDiverged stops this replica because a majority has another checkpoint than it. Nothing
// happens, and the error says so, unless its own checkpoint at that index is there and
// differs; a replica that has stopped already is no error. Whoever calls it has compared
// (Difference.Alone), at the leader or elsewhere: a leader can be the one that is wrong.
func (g *Group) HaltDiverged(majority Checkpoint) error {
	for _, own := range g.Checkpoints() {
		switch {
		case own.Index != majority.Index:
		case own.Version != majority.Version:
			return fmt.Errorf("condemn replica %s: its digests have version %d and not %d", g.cfg.Replica, own.Version, majority.Version)
		case own == majority:
			return fmt.Errorf("condemn replica %s: it has the same at %d", g.cfg.Replica, own.Index)
		default:
			g.halt(fmt.Errorf("at index %d it has digest %016x of term %d and the majority %016x of term %d: %w",
				own.Index, own.Digest, own.Term, majority.Digest, majority.Term, ErrDiverged))
			return nil
		}
	}
	return fmt.Errorf("condemn replica %s: it has no checkpoint at %d", g.cfg.Replica, majority.Index)
}
