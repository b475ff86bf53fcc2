// Package management performs the requests to the management nodes of entities, $management: peeks, renewals,
// settlements by lock token, deferred and scheduled messages, states of sessions, and rules
// (docs/service-bus-protocol.md#management-operations). Package amqp receives a Request over a link, checks the
// rights and charges its cost, and calls Manager.Perform; it encodes the Response and sends it over another link. The
// package knows neither links nor frames. It may not import amqp: what it needs of a connection is Conn, what it needs
// of the broker is Broker.
//
// A Manager has no state of its own. Its operations run concurrently: none blocks the reader of the connection, and
// each calls Request.Respond exactly once, from any goroutine, without the mutex of the connection. That mutex
// (Conn.Lock) guards only the transactions, and the broker is never called while it is held.
package management
