// Package gossip keeps the list of the members of a cluster: where each can be reached, what its
// binary supports, and whether it is alive. It wraps hashicorp/memberlist (SWIM with suspicion).
//
// Package cluster uses it as an address book and as a hint. The package makes no decision that must be
// right: metadata in gossip may be wrong, a listed process may have ended, and a process that is
// considered dead may be alive. Nothing is sent through gossip but metadata.
//
// Invariants:
//
//   - Of several processes of one member, the one that started last represents it.
//   - Members of another cluster are refused once both sides know the id of their cluster.
//   - Memberlist calls the Notify methods with its own locks held, so they write to the list of members
//     and nothing else; Config.OnLost is called with no lock held.
package gossip
