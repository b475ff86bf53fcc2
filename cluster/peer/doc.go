// Package peer carries the streams between members: it opens, accepts, encrypts and identifies them, and
// passes each to the handler of its kind.
//
//	dial: TCP ─ TLS ─ header ─► reply ─► stream        raft, forward or backup
//
// Package cluster uses it with one peer port per member. The package does not know what a stream
// carries, which members are alive, or which members hold a partition.
//
// Invariants:
//
//   - No handler gets a stream before its header has named this member and its cluster, and, with TLS,
//     before both ends have presented a certificate that is valid for servers and for clients.
//   - A raft stream that names a replica reaches that replica or none.
//   - A handshake takes handshakeTimeout at most, its first byte silentTimeout, and at most handshakesMax run at a
//     time: a port scan costs no more than that, and keeps no member out (see places).
//   - Refused peers are logged at most once per throttle.LogEvery and address.
package peer
