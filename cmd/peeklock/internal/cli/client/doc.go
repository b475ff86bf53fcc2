// Package client has the client of the control API: over HTTP, HTTPS, or the control socket of a member.
//
// Every command that needs a member has a [Client]. It knows the flags --server, --key, --ca, --namespace and --output, and
// nothing of nouns and verbs. Package gateway opens AMQP sessions with its credentials.
//
//	client.go     flags, addresses, credentials
//	call.go       requests and their paths
//	errors.go     refusals, and failures after which nothing was sent
//	endpoints.go  AMQP addresses of the members
//	socket.go     control sockets
//
// Invariants:
//
//   - A change is sent again only if no member can have begun it.
//   - If the answer to a change is missing, the error is marked with [cli.Unknown].
//   - No secret is in an error.
//
// A Client is for one goroutine until [Client.Endpoints] has returned; after that, it is safe for concurrent use.
package client
