// Package gateway opens AMQP sessions with members, as any other AMQP client could.
//
// Packages messages and bench use it. It has the protocol of Service Bus that go-amqp lacks: tokens, sessions of queues, and
// the management node of an entity. It knows nothing of commands and their output.
//
//	session.go     connections, TLS, authentication
//	accept.go      sessions of queues and subscriptions
//	management.go  requests to a management node
//	outcome.go     accepted, refused or unknown
//
// A [Session] is safe for concurrent use, a [Management] is for one goroutine.
package gateway
