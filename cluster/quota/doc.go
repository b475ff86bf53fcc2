// Package quota divides the memory and the disks of members among namespaces, so that one of them cannot take what the
// others need. Package cluster makes one [Monitor] per member.
//
// Once a second, and more often while a namespace is about to exceed its share, each member adds up, by namespace, what its
// replicas hold, and asks the other members what theirs do. A namespace that holds more than its share of a member is refused
// growth by the leaders of all partitions of which a quorum of replicas is on such members. What settles, clears, deletes or
// releases is never refused. The sums go from member to member by a query and not by gossip: the metadata of gossip has 512 bytes, and a report some for each of up to
// [fsm.NamespacesMax] namespaces. What is stored in the meantime, within [Delay], is the overshoot.
//
// The package does not measure memory: the program does, see [Monitor.SetMemory]. It may not import package cluster.
//
// Refuses and Reason may be called concurrently with everything. No lock is held while a state machine or a member is asked.
package quota
