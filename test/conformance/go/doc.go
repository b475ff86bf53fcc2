// Package conformance holds the promises of the product against the official Go client,
// azservicebus, unmodified and as new as go.mod has it, and against go-amqp, which it
// stands on. Three real members serve; what one member is told must be seen at the
// others. docs/requirements.md has the promises.
package conformance
