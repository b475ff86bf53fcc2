// Package api has the bodies of requests and answers of the control API, as JSON.
//
// Package admin serves them, the command line and the load generator send and read them. It has no HTTP and no checks.
//
//	entity.go topics.go  queues, topics, subscriptions, sessions; health and problems
//	access.go            namespaces and access rules
//	operate.go           members, partitions, moves
//	describe.go          entities of fsm in this form
//
// Invariant: the JSON is stable: fields are added, never renamed or removed.
package api
