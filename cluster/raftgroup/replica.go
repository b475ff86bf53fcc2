package raftgroup

import (
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// CatalogReplica is the number of every replica of the catalog: a member whose disk was
// wiped has another member id, so the number need not distinguish them.
const CatalogReplica = 1

// ReplicaID returns the permanent name of a replica in raft.
func ReplicaID(member fsm.MemberID, number uint32) string {
	return string(member) + "." + strconv.FormatUint(uint64(number), 10)
}

// ReplicaMember returns the member in the name of a replica; "" where the name has none.
func ReplicaMember(name string) fsm.MemberID {
	at := strings.LastIndexByte(name, '.')
	return fsm.MemberID(name[:max(0, at)])
}
