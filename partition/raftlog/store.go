package raftlog

import (
	"errors"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/peeklock/peeklock/fsm"
)

// Store is the part of raft-boltdb that the log uses. What StoreLogs, DeleteRange and Set have written is
// durable when they return; a crash while one of them runs leaves all or nothing of it.
type Store interface {
	// GetLog returns raft.ErrLogNotFound for an index that is not stored.
	GetLog(index uint64, out *raft.Log) error
	StoreLogs(entries []*raft.Log) error
	DeleteRange(low, high uint64) error
	// Set stores a value; an empty one means that the key is not set.
	Set(key, value []byte) error
	// Get returns nothing or raftboltdb.ErrKeyNotFound for a key that is not set.
	Get(key []byte) ([]byte, error)
	Close() error
}

// OpenStore opens the store at a path and creates it if needed. The ranges are those of all groups that have
// entries. It returns an error within a second if another process has it open.
type OpenStore func(path string) (Store, map[fsm.PartitionID]IndexRange, error)

// IndexRange is the range of a group in the store: the first and last index, both 0 when it has no entries.
type IndexRange struct{ First, Last uint64 }

func (r IndexRange) add(index uint64) IndexRange {
	if r.Last == 0 {
		return IndexRange{index, index}
	}
	return IndexRange{min(r.First, index), max(r.Last, index)}
}

// RangesOf returns the ranges of the groups that have entries under the given keys of a store.
func RangesOf(keys []uint64) map[fsm.PartitionID]IndexRange {
	found := make(map[fsm.PartitionID]IndexRange)
	for _, k := range keys {
		id := fsm.PartitionID(k >> logIndexBits)
		found[id] = found[id].add(k & IndexMax)
	}
	return found
}

// isNotFound reports whether a stable value has never been written.
func isNotFound(err error) bool { return errors.Is(err, raftboltdb.ErrKeyNotFound) }
