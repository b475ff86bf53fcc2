// Package dapr runs the pub/sub components and the binding of Dapr for the service, as they are published, against three members. It
// is a module of its own, because Peeklock does not need what Dapr needs.
package dapr
