// Package conformance tests the promises of the product with the official Go client,
// azservicebus, unmodified and in the version of go.mod, and with go-amqp, on which it is
// based. Three real members serve the clients; the effects of a request to one member must be visible
// at the others. docs/requirements.md lists the promises.
package conformance
