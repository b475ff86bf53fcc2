// Package settlement holds what the two ways to settle messages have in common: dispositions on links, in package
// amqp, and requests to the management node, in amqp/management. It reads the properties that a settlement
// changes, and distinguishes a lost message lock from a lost session. It knows no links and no connections.
// Its functions hold no state and may be called concurrently.
package settlement
