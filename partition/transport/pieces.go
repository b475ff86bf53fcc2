package transport

import "github.com/hashicorp/raft"

// requestBytesMax bounds the entries of one AppendEntries request, unless a single one is larger. Raft bounds
// only their number.
const requestBytesMax = 4 << 20

// fitting returns how many of the first entries one request carries, at least one of them.
func fitting(entries []*raft.Log) int {
	size := 0
	for i, e := range entries {
		size += len(e.Data)
		if i > 0 && size > requestBytesMax || i == frameEntriesMax {
			return i
		}
	}
	return len(entries)
}

// pieceOf returns the request that carries the entries from the given position on that fit, and the position
// behind them.
//
// Raft's follower takes everything that it has up to the commit index for committed, also entries behind those of
// the request that may be of another leader (raft 1.7.3, appendEntries). So a request never has a commit index
// behind its last entry, as the Raft paper demands.
func pieceOf(args *raft.AppendEntriesRequest, from int) (*raft.AppendEntriesRequest, int) {
	next := from + fitting(args.Entries[from:])
	piece := *args
	piece.Entries = args.Entries[from:next]
	if from > 0 {
		piece.PrevLogEntry, piece.PrevLogTerm = args.Entries[from-1].Index, args.Entries[from-1].Term
	}
	last := piece.PrevLogEntry
	if n := len(piece.Entries); n > 0 {
		last = piece.Entries[n-1].Index
	}
	piece.LeaderCommitIndex = min(piece.LeaderCommitIndex, last)
	return &piece, next
}

// limitCommit lowers the commit index of a request to what is on this leader's disk. Raft counts the leader as one of the quorum
// before it has written the entries, and no other replica may take them for committed then.
func (t Transport) limitCommit(args *raft.AppendEntriesRequest) {
	if t.cfg.Stored != nil {
		args.LeaderCommitIndex = min(args.LeaderCommitIndex, t.cfg.Stored())
	}
}
