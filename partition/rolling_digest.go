package partition

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
	// checkpointEntries is the distance between two checkpoints, in indexes.
	checkpointEntries = 4096
	// digestEpochEntries is the distance, in indexes, after which a digest restarts: a replica that does not
	// know its digest, after an upgrade, can be compared again from there.
	digestEpochEntries = 16 * checkpointEntries
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

// rollingDigest is the rolling digest of a replica. Its caller holds the machine.
//
// Entries that no machine sees (raft's own) are left out: the checkpoint at 4096 is made when the first entry
// behind 4096 is applied.
type rollingDigest struct {
	sum   uint64
	known bool // from its beginning, or from a snapshot
	term  uint64
	buf   []byte

	mu          sync.Mutex
	checkpoints []Checkpoint // oldest first
}

// checkpoint is called before the entry at index is applied; previous is the index applied last.
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

// addResult adds the result of a command. It leaves out the places of bodies, which differ between replicas;
// their content is in the entry that brought them.
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

// current returns the digest of all entries up to the newest one, also where its beginning is not known.
func (c *rollingDigest) current() uint64 { return c.sum }

// endEntry ends an entry.
func (c *rollingDigest) endEntry() { c.sum = xxhash.Sum64(c.buf) }

// restore sets the digest to that of a snapshot.
func (c *rollingDigest) restore(s digestState) {
	c.sum, c.known, c.term = s.Digest, s.DigestVersion == digestVersion, s.DigestTerm
}

// state returns the digest for a snapshot.
func (c *rollingDigest) state() digestState {
	if !c.known {
		return digestState{DigestTerm: c.term}
	}
	return digestState{c.sum, digestVersion, c.term}
}

// digestState is a rolling digest as snapshots store it. Version 0: the digest is not known.
type digestState struct {
	Digest        uint64 `json:"Digest"`
	DigestVersion uint8  `json:"DigestVersion"`
	DigestTerm    uint64 `json:"DigestTerm"` // of the newest entry
}

// newest returns the newest checkpoints, oldest first. It may be called without the machine.
func (c *rollingDigest) newest() []Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.checkpoints)
}

// Difference is the result of CompareCheckpoints. The zero value means that there is none.
type Difference struct {
	Index uint64 // of the first checkpoint that differs
	// Majority is the checkpoint of more than half of all voters; its Index is 0 when no value has a
	// majority, and then no replica can be called wrong.
	Majority Checkpoint
	Outliers []string // replicas whose checkpoint differs from Majority, sorted
}

// CompareCheckpoints returns the first index at which replicas differ. of holds the checkpoints of each voter
// that answered, by the name of its replica; voters is the number of all voters.
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
