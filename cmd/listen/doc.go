// Package listen serves every protocol of the product on one port. It peeks at the first bytes of a connection and
// delivers the connection with these bytes to the gateway or to the admin server:
//
//	listener ─┐              ┌ "AMQP…" ────────────────────────────────→ AMQP() ─→ gateway
//	listener ─┼→ first bytes ┼ "GET /$servicebus/websocket" → upgrade ─→ AMQP()
//	listener ─┘   ↑          ├ "GET /…", "PUT /…" ─────────────────────→ HTTP() ─→ admin
//	              └── TLS ───┴ 16 03: handshake, then the first bytes inside
//
// Package main opens a [Port] for each member and gives its two listeners to the gateway and the admin server,
// which do not know about it. The package knows AMQP and HTTP only as far as the first bytes and the WebSocket
// upgrade require.
//
// Clients of all three protocols speak first, so the protocol never has to be guessed from silence. A connection
// is pending until its protocol is known and a server has accepted it. It may be pending for
// [Config].PendingTimeout in total, and there are at most [Config].PendingMax pending connections. When there is
// one more, the oldest pending connection of the address with the most is closed, so that silent connections
// cannot lock out other clients.
//
// A peer of a WebSocket that sends little in many fragments, or many pings, is read later.
//
// Invariants: every byte of a client reaches the server of the connection once and in order (FuzzFirstBytes). No
// goroutine outlives Close. A connection that was delivered belongs to the server, and this package does not use
// it again.
package listen
