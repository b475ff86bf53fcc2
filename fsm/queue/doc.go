// Package queue is the state machine of a message partition: entities, messages, locks, sessions and rules.
//
// [Machine] performs the commands of its partition. Each entity has four sub-queues; a sub-queue is an index from sequence number to
// record (package index), in chunks that images share. Bodies are outside of the machine: a record has the location of its
// body. Time passes by commands: each carries the times that the leader has stamped on it, and a pulse does what is due
// (pulse.go). What others have to know of a command, such as ready messages, is an effect.
//
// A Machine is not safe for concurrent use; its images may be used concurrently with it.
package queue
