// Package listen lets one port serve every protocol of the product. It looks at the first
// bytes of a connection and delivers it, unread, to the gateway or to the admin server:
//
//	listener ─┐              ┌ "AMQP…" ────────────────────────────────→ AMQP() ─→ gateway
//	listener ─┼→ first bytes ┼ "GET /$servicebus/websocket" → upgrade ─→ AMQP()
//	listener ─┘   ↑          ├ "GET /…", "PUT /…" ─────────────────────→ HTTP() ─→ admin
//	              └── TLS ───┴ 16 03: handshake, then the first bytes inside
//
// Package main opens a [Port] for each member and gives its two listeners to the gateway and the admin server, which know
// nothing of it. The package does not know AMQP or HTTP beyond the first bytes and the WebSocket upgrade.
//
// Clients of all three protocols speak first, so the protocol never has to be guessed from silence. A connection is pending
// until its protocol is known and a server has accepted it. It has [Config].PendingTimeout in all, and there are at most
// [Config].PendingMax pending connections; for one more, the oldest of the address that has the most is closed, so that silent
// connections cannot lock out other clients.
//
// Invariants: every byte of a client reaches the server that gets the connection, in order,
// once (FuzzFirstBytes). No goroutine outlives Close. A connection that was delivered belongs
// to the server, and this package does not use it again.
package listen
