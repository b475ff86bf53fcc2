package raftlog

import "encoding/binary"

// The store has one index for the entries of all groups.
const (
	logIndexBits = 40                  // of a key; the 24 bits above are the group
	IndexMax     = 1<<logIndexBits - 1 // entries of one group in its lifetime
	groupMax     = 1<<24 - 1
)

func keyIndex(k []byte) uint64 { return binary.BigEndian.Uint64(k) }

func indexKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }

// The keys of a group's stable values, as raft calls them. The vote, for which raft uses two keys, is stored
// as one value.
const (
	keyTerm = "CurrentTerm"
	keyVote = "Vote" // 8 bytes term, then the candidate

	keyReplica = "Replica"

	raftKeyVoteTerm = "LastVoteTerm"
	raftKeyVoteCand = "LastVoteCand"
)
