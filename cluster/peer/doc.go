// Package peer carries the streams between members: it opens, accepts, encrypts and identifies them, and
// hands each to the part that it is for.
//
//	dial: TCP ─ TLS ─ header ─► reply ─► stream        raft, forward or backup
//
// Package cluster uses it with one peer port per member. The package does not know what a stream
// carries, who is alive, or where a partition lies.
//
// Invariants:
//
//   - Nothing of a stream is handed on before its header named this member and its cluster, and, with
//     TLS, before both ends have shown a certificate that is good for servers and for clients.
//   - A handshake takes handshakeWaitMax at most, and at most handshakesMax run at a time: a port scan
//     costs no more than that.
//   - Refused peers are logged at most once per throttle.LogEvery and address.
package peer
