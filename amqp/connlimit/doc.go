// Package connlimit limits the open connections of a server, in total and of each source address.
//
// The gateway (amqp), the HTTP server (admin) and the port that all clients connect to (cmd/listen) use one
// Limiter each, so that one rule decides who loses a connection when there are too many: the address that has
// the most of them. A client that opens thousands of connections thus closes its own. admin/auth and the audit log
// count clients by the same addresses, with Source and SourceOfIP.
//
// The package closes no connection itself, writes no log line and has no clock.
package connlimit
