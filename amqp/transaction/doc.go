// Package transaction has the transactions of one connection (part 4): what a client wants to do atomically is
// collected, and done with one call of the broker when the client commits.
//
//	Declare ──► Send, Settle, Cancel, SetState ──► Discharge ──► Broker.Transact
//	                │ Check                            │ waits for the answers to what was enlisted
//	                ▼
//	           Broker.Check: can the operation succeed?
//
// A [Set] is the transactions of a connection, a [Transaction] one of them. The mutex of the connection guards both:
// it is [Connection], and each method says whether it is held. No goroutine belongs to the package.
//
// The package writes no frames and knows no links: amqp parses commands and operations with it, and answers them
// in functions that it passes. The deliveries that a transaction settles belong to sessions of the connection, and
// are known here as [Deliveries] only. Rights are checked before an operation is enlisted.
package transaction
