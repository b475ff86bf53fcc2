// Package queue is the state machine of a message partition: entities, messages, locks, sessions and rules.
//
// [Machine] performs the commands of its partition. Each entity has four sub-queues; a sub-queue is an index from sequence number to
// record (package index), in chunks that images share. Bodies are outside of the machine: a record has the location of its
// body. Time passes by commands: each carries the times that the leader has stamped on it, and a pulse does what is due
// (pulse.go). What others have to know of a command, such as ready messages, is an effect.
//
// A Machine is made of parts. Each part is a type with the methods for one task and the state that belongs to it alone, and contains the parts that
// it calls:
//
//	core          entities by id, times, bodies, timers (core.go, refs.go)
//	messages      moves, changes and deletes single messages
//	sessions      locks sessions, and returns their messages
//	topics        publishes messages; rules (topic.go, pending.go, topic_state.go)
//	releases      releases the bodies of deleted entities
//	fences        refuses commands for shards that may be deleted
//	registry      creates, changes and deletes entities (entity.go)
//	idleness      deletes entities that nobody uses
//	sending       stores messages that are sent or forwarded here (send.go, scheduled.go, transfer.go)
//	receiving     locks messages, settles, purges and redrives them (lock.go, settle.go, purge.go)
//	forwarding    takes messages into batches for other entities
//	transactions  performs all of a transaction or nothing
//	pulses        does what is due
//
// All parts point to one core. What one entry may do at most is counted by the part that does it; Apply starts the counts again with each entry.
//
// A Machine is not safe for concurrent use; its images may be used concurrently with it.
package queue
