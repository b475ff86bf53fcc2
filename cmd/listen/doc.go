// Package listen lets one port serve every protocol of the product. It looks at the first
// bytes of a connection and hands it, unread, to the gateway or to the admin server:
//
//	listener ─┐              ┌ "AMQP…" ────────────────────────────────→ AMQP() ─→ gateway
//	listener ─┼→ first bytes ┼ "GET /$servicebus/websocket" → upgrade ─→ AMQP()
//	listener ─┘   ↑          ├ "GET /…", "PUT /…" ─────────────────────→ HTTP() ─→ admin
//	              └── TLS ───┴ 16 03: handshake, then the first bytes inside
//
// Clients of all three protocols speak first, so nothing has to be guessed from silence.
// Until a connection is handed over it belongs to a stranger: a stranger has
// [Config].StrangerTimeMax in all, and there are at most [Config].StrangersMax of them;
// one more and the oldest of the address that has the most is cut off, so that clients that say
// nothing cannot keep out those that do.
//
// What always holds: a byte that a client sent reaches the server it is handed to, in
// order, once (FuzzFirstBytes). No goroutine outlives Close. A connection that was handed
// over is the server's, and is not touched again.
package listen
