// Package confirm tells whether this member's replica of the catalog may be believed.
//
// A replica that has just been opened is as old as its last snapshot until raft tells it what is committed, and a replica that is
// cut off from its leader grows old. Names, hosts and access rules are read locally, so a member would resolve a name to an entity
// that was deleted, or accept a key that was revoked. A [Catalog] asks the leader for an index that a quorum has confirmed, and
// counts the replica as confirmed once it has applied that index.
//
// The package reaches the replica and its leader through [Config] only. A Catalog is safe for concurrent use.
package confirm
