// Package index holds the messages of one sub-queue: the record of each by sequence number, and the times at which something is
// due.
//
// An [Index] stores 48 bytes a message, in chunks of 1,024 that images share ([Frozen]): a chunk is copied before it is written in a
// later generation of the [Arena]. A [Record] changes by methods, each of which is a step in the life of a message. Timers are lower bounds,
// ordered over all indexes of an Arena; stale ones are skipped when they are due. Bodies are outside: a record has the location of
// its body.
//
// The package knows nothing of entities, commands and other sub-queues. It imports fsm, fsm/heap and fsm/image. Neither an Arena nor its indexes are
// safe for concurrent use; a Frozen may be read concurrently with them.
package index
