package raftlog

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// The limits of entries in memory. Raft's own LogCache counts entries, and entries here have up to 512 KiB each.
const (
	entryCacheBytesMax = 2 << 20 // the newest entries of a group
	logCacheBytesMax   = 8 << 20 // the newest entries of all groups of a member; exceeded until the next append ends
)

// entryCache holds the newest entries of a log without gaps. Entries are shared and never changed. The group
// log guards it.
type entryCache struct {
	entries []*raft.Log // by rising index; the front is dropped by reslicing
	bytes   int
	total   *atomic.Int64 // bytes of all groups
}

// EntryOverhead is the approximate size of an entry besides its data, in bytes.
const EntryOverhead = 64

func entryBytes(e *raft.Log) int { return len(e.Data) + len(e.Extensions) + EntryOverhead }

func (c *entryCache) get(index uint64, out *raft.Log) bool {
	if len(c.entries) == 0 || index < c.entries[0].Index {
		return false
	}
	i := index - c.entries[0].Index
	if i >= uint64(len(c.entries)) {
		return false
	}
	*out = *c.entries[i]
	return true
}

func (c *entryCache) add(e *raft.Log) {
	if n := len(c.entries); n > 0 && c.entries[n-1].Index+1 != e.Index {
		c.reset()
	}
	kept := *e
	c.entries = append(c.entries, &kept)
	c.grow(entryBytes(e))
	for c.bytes > entryCacheBytesMax && len(c.entries) > 1 {
		c.dropFront()
	}
}

func (c *entryCache) grow(bytes int) {
	c.bytes += bytes
	c.total.Add(int64(bytes))
}

func (c *entryCache) dropFront() {
	c.grow(-entryBytes(c.entries[0]))
	c.entries[0] = nil
	c.entries = c.entries[1:]
}

func (c *entryCache) dropUpTo(index uint64) {
	for len(c.entries) > 0 && c.entries[0].Index <= index {
		c.dropFront()
	}
}

func (c *entryCache) dropFrom(index uint64) {
	for n := len(c.entries); n > 0 && c.entries[n-1].Index >= index; n = len(c.entries) {
		c.grow(-entryBytes(c.entries[n-1]))
		c.entries[n-1] = nil
		c.entries = c.entries[:n-1]
	}
}

// shrink drops the oldest entries until at most bytes are left, but no entry from the index keep on.
func (c *entryCache) shrink(bytes int, keep uint64) {
	for c.bytes > bytes && len(c.entries) > 0 && c.entries[0].Index < keep {
		c.dropFront()
	}
	if len(c.entries) == 0 {
		c.reset() // frees the array
	}
}

func (c *entryCache) reset() {
	c.grow(-c.bytes)
	*c = entryCache{total: c.total}
}
