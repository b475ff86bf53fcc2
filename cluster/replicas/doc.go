// Package replicas opens and closes the replicas of raft groups that a member holds ([Set]), replaces those whose log is
// damaged ([Healer]), and removes those that the catalog has retired ([Retirer]). Package cluster makes one of each per member.
//
// The package does not know the catalog's record of its own: the caller passes it. It may not import package cluster or the
// packages that use its replicas.
//
// Invariants:
//
//   - At most one replica of a group is open, although the data folder may hold several.
//   - A replica that the data folder does not hold yet is created only if the catalog's leader confirms it.
//   - No lock is held while a group is called.
//
// All methods are safe for concurrent use, except where they say otherwise.
package replicas
