// Package inspect finds messages for people: by state, session, number, SQL filter, text and JSON path. It is what the
// routes of the control API about single messages do; package admin checks access, and decodes and encodes.
//
// A member that gets a request peeks at the messages at the leaders of their partitions, page by page, and evaluates the
// conditions itself, filters with the evaluator of rules. One request looks at a bounded number of messages and answers with
// the number to go on from.
//
// The package knows the cluster through [Broker]. It imports the codec of messages, the evaluator of filters and the JSON of
// the control API; it knows no HTTP. A Finder is safe for concurrent use.
package inspect
