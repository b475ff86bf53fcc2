// Package login decides what a connection may do: it checks the credentials that a client presents in SASL and in
// put-token requests, stores the grants that the Authorizer returned for them, and answers whether they give a right
// for a path. Package amqp reads and writes the frames, and detaches the links that lose their right. The package knows
// neither links nor frames; what it needs of a connection is Conn.
//
// The mutex of the connection (Conn.Lock) guards a Credentials; each method says whether its caller holds that mutex.
// The Authorizer and the Broker are never called while it is held.
package login
