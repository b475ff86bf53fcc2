// Package query declares queries that the leader of a partition answers from its state machine, and answers them from the
// replicas of this member. Packages client, entities and router declare queries with it; package cluster asks StatusOfReplica.
//
// A query is read-only and leaves nothing in a log. It may not import the packages that ask: it reaches leaders through
// the interface Leaders.
//
// Invariants:
//
//   - A Read is answered by a leader that a quorum has confirmed, as of the call or later.
//   - A catalog whose cluster is still being bootstrapped does not answer that something does not exist.
//   - The kinds, arguments and replies of queries are a format: members of consecutive releases exchange them.
//
// All functions are safe for concurrent use. A function that reads a state machine holds its lock and must not block.
package query
