// Package skip marks entries of a log that a replica must not perform.
//
// An entry on which the machine panics stops every replica of its group, and stops each of them again when it is opened. An
// operator can mark the entry on the replicas of a quorum, by index and checksum, while their members are stopped. A replica
// with the mark does not perform the commands of the entry: each gets, and is remembered with, the answer Internal. All
// replicas with the mark do the same, so they stay equal. One without it stops again, and is replaced.
//
// The command line marks entries by way of package cluster; package partition opens the marks with a replica.
package skip
