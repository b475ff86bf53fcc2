// Package judge says which promises a cluster has broken, by what the clients of a simulation saw of it. It knows nothing of
// the cluster, nor of how clients and faults run: it is told what clients asked, what they heard and when, where clocks were
// wrong, and when the cluster was restored from a copy.
//
// A [Stream] is a way of messages through entities: from where they are sent to where they are received. Package test/history checks
// the history of each message of it. On top of that, this package checks
//
//   - what must arrive where: as rules at the time of the send, cancellations, purges and requests of receive-and-delete
//     without an answer explain it ([Rules], [Purges], [Takes], schedule.go);
//   - when it arrives: not before it is due, and neither dead too early nor alive too late ([Lives], [Clocks]);
//   - who holds a session, what its state is, and in which order its messages come ([Sessions]);
//   - settlements without a lock, and failed deliveries that are counted twice (late.go, judge.go);
//   - what a restore has lost and duplicated, which is allowed exactly as docs/operations.md states it ([Restoration]);
//   - a queue and the sessions with Porcupine ([Stream.CheckLinear]).
//
// What a client notices while it runs is kept by [Stream.Find]; [Stream.Judge] reports it together with what is found in
// the history when all clients have ended. Every method may be called by many goroutines at once, unless its comment says otherwise. Fields
// are set before the first client starts.
package judge
