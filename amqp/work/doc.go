// Package work limits how much work the clients of a process may request per second.
//
// Work is counted in units of about 10 us of a processor. The gateway decides how many units an operation costs. A
// Limiter limits all connections of the process together, an Account one connection, and an account of a Shared all requests
// of an owner that come without a connection of their own, such as those over HTTP. All are token buckets.
// A connection that exceeds either waits; nothing is refused. What an Account has left of its burst when it ends
// is that of the next one of the same owner.
//
// When the Limiter is the limit, it divides the rate fairly: it serves the key that has received the least, and of that the
// connection that has received the least (start-time fair queueing). A key, or a connection of it, that requests little
// therefore hardly waits, however many units others request, on however many connections.
// Connections that have not been served yet are served in the order of their arrival, and have the share of 16 connections
// together: a stream of new connections delays an old one by a bounded amount of work.
package work
