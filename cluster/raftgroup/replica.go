package raftgroup

import (
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// CatalogReplica is the number of the first replica of the catalog of every member. A member whose disk was wiped has
// another member id; one that has lost entries of the log counts on.
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

// ReplicaNumber returns the number in the name of a replica; 0 where the name has none.
func ReplicaNumber(name string) uint32 {
	number, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 32)
	return uint32(number)
}
