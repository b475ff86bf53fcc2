// Package listen lets one port serve every protocol of the product. It looks at the first
// bytes of a connection and hands it, unread, to the gateway or to the admin server:
//
//	listener ─┐              ┌ "AMQP…" ────────────────────────────────→ AMQP() ─→ gateway
//	listener ─┼→ first bytes ┼ "GET /$servicebus/websocket" → upgrade ─→ AMQP()
//	listener ─┘   ↑          ├ "GET /…", "PUT /…" ─────────────────────→ HTTP() ─→ admin
//	              └── TLS ───┴ 16 03: handshake, then the first bytes inside
//
// Clients of all three protocols speak first, so nothing has to be guessed from silence.
// A connection whose protocol is not known yet is called a stranger. It has
// [Config].StrangerTimeMax in all, and there are at most [Config].StrangersMax of them; for one
// more, the oldest of the address that has the most is closed, so that silent connections cannot
// lock out other clients.
//
// Invariants: every byte of a client reaches the server that gets the connection, in order,
// once (FuzzFirstBytes). No goroutine outlives Close. A connection that was handed over belongs
// to the server, and this package does not use it again.
package listen
