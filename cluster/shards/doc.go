// Package shards computes which shard of a partitioned entity a message or a sequence number belongs
// to. Packages router and forwarding use it. It is pure: it keeps no state and calls nothing.
//
// Invariants:
//
//   - The hash of a key and the position of the shard in a sequence number never change: otherwise messages
//     of one key would be in two shards, and lock tokens would name the wrong shard.
package shards
