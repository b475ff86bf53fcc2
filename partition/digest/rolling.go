package digest

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

const (
	// digestVersion identifies the way in which digests are computed. Digests of different versions cannot be
	// compared.
	digestVersion = 1
	// CheckpointEntries is the distance between two checkpoints, in indexes.
	CheckpointEntries = 4096
	// digestEpochEntries is the distance, in indexes, after which a digest restarts: a replica that does not
	// know its digest, after an upgrade, can be compared again from there.
	digestEpochEntries = 16 * CheckpointEntries
	checkpointsMax     = 64 // the newest are kept
)

// Checkpoint is the rolling digest of a replica at an index that is the same for all replicas: a hash over
// the bytes of every entry and the result of every command up to there. If two checkpoints differ, the
// replicas differ at that index or before.
type Checkpoint struct {
	Index   uint64 `json:"Index"` // covers everything up to it
	Term    uint64 `json:"Term"`  // of the last applied entry up to Index
	Digest  uint64 `json:"Digest"`
	Version uint8  `json:"Version"` // only digests of one version can be compared
}

// Rolling is the rolling digest of a replica. The caller holds the lock of the machine; only Newest may be called without. The
// zero value is the digest of a replica that has applied nothing.
//
// Entries that no machine sees (raft's own) are left out: the checkpoint at 4096 is made when the first entry
// behind 4096 is applied.
type Rolling struct {
	sum   uint64
	known bool // from its beginning, or from a snapshot
	term  uint64
	buf   []byte

	mu          sync.Mutex
	checkpoints []Checkpoint // oldest first
}

// Checkpoint is called before the entry at index is applied; previous is the index applied last.
func (c *Rolling) Checkpoint(previous, index uint64) {
	stage := func(i, every uint64) uint64 { return (max(i, 1) - 1) / every }
	if at := stage(index, CheckpointEntries); at > stage(previous, CheckpointEntries) && c.known {
		c.addCheckpoint(Checkpoint{Index: at * CheckpointEntries, Term: c.term, Digest: c.sum, Version: digestVersion})
	}
	if epoch := stage(index, digestEpochEntries); previous == 0 || epoch > stage(previous, digestEpochEntries) {
		c.sum, c.known = epoch, true
	}
}

func (c *Rolling) addCheckpoint(p Checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.checkpoints) >= checkpointsMax {
		c.checkpoints = slices.Delete(c.checkpoints, 0, len(c.checkpoints)-checkpointsMax+1)
	}
	c.checkpoints = append(c.checkpoints, p)
}

// BeginEntry starts an entry: AddResult follows for each of its commands, then EndEntry.
func (c *Rolling) BeginEntry(e *raft.Log) {
	b := binary.LittleEndian.AppendUint64(c.buf[:0], c.sum)
	b = binary.LittleEndian.AppendUint64(b, e.Index)
	b = binary.LittleEndian.AppendUint64(b, e.Term)
	c.buf = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(e.Data))
	c.term = e.Term
}

// AddResult adds the result of a command. It leaves out the places of bodies, which differ between replicas;
// their content is in the entry that brought them.
func (c *Rolling) AddResult(r *fsm.Result) {
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

// Current returns the digest of all entries up to the newest one, also where its beginning is not known.
func (c *Rolling) Current() uint64 { return c.sum }

// EndEntry ends an entry.
func (c *Rolling) EndEntry() { c.sum = xxhash.Sum64(c.buf) }

// Restore sets the digest to that of a snapshot.
func (c *Rolling) Restore(s State) {
	c.sum, c.known, c.term = s.Digest, s.DigestVersion == digestVersion, s.DigestTerm
}

// State returns the digest for a snapshot.
func (c *Rolling) State() State {
	if !c.known {
		return State{DigestTerm: c.term}
	}
	return State{c.sum, digestVersion, c.term}
}

// State is a rolling digest as snapshots store it. Version 0: the digest is not known.
type State struct {
	Digest        uint64 `json:"Digest"`
	DigestVersion uint8  `json:"DigestVersion"`
	DigestTerm    uint64 `json:"DigestTerm"` // of the newest entry
}

// Newest returns the newest checkpoints, at most 64, oldest first. It may be called concurrently.
func (c *Rolling) Newest() []Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.checkpoints)
}

// Difference is the result of Compare. The zero value means that there is none.
type Difference struct {
	Index uint64 // of the first checkpoint that differs
	// Majority is the checkpoint of more than half of all voters; its Index is 0 when no value has a
	// majority, and then no replica can be called wrong.
	Majority Checkpoint
	Outliers []string // replicas whose checkpoint differs from Majority, sorted
}

// Compare returns the first index at which replicas differ. of holds the checkpoints of each voter
// that answered, by the name of its replica; voters is the number of all voters.
func Compare(of map[string][]Checkpoint, voters int) Difference {
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
