// Package totals counts what happens to the messages of one queue, topic or subscription.
//
// A [Totals] is part of the replicated state of an entity: the state machine of fsm/queue counts in it while it applies
// commands, so all replicas hold equal totals, and neither a restart nor a new leader resets them. Only a restore from a backup
// sets them back. The package imports nothing, and a Totals is not safe for concurrent use.
package totals
