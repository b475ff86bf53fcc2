package raftlog

import "github.com/hashicorp/raft"

// entryCacheBytesMax bounds the newest entries kept in memory for each group. Raft's own LogCache counts
// entries, and entries here have up to 512 KiB each.
const entryCacheBytesMax = 2 << 20

// entryCache holds the newest entries of a log without gaps. Entries are shared and never changed. The group
// log guards it.
type entryCache struct {
	entries []*raft.Log // by rising index; the front is dropped by reslicing
	bytes   int
}

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
	c.bytes += entryBytes(e)
	for c.bytes > entryCacheBytesMax && len(c.entries) > 1 {
		c.dropFront()
	}
}

func (c *entryCache) dropFront() {
	c.bytes -= entryBytes(c.entries[0])
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
		c.bytes -= entryBytes(c.entries[n-1])
		c.entries[n-1] = nil
		c.entries = c.entries[:n-1]
	}
}

func (c *entryCache) reset() { *c = entryCache{} }
