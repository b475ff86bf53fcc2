// Package fsm decides: from log entries alone it says what every entity, message
// and lock is.
//
// It holds two machines. [Queues] is the machine of a message partition: the
// queues, topics and subscriptions placed there, their messages, locks and rules. [Catalog]
// is the machine of partition 0: which namespaces and entities exist, who may use them, where
// they are placed, which members hold which partition. Both see three things: their own state, the [Env] of the log
// entry, and the command bytes. They read no clock, draw no random number, start no
// goroutine and range over no map, so every replica that applies the same entries
// holds the same bytes.
//
// Work passes through three steps, of which only the middle one lives here:
//
//	prepare  the leader stamps time and identity into the entry   (partition)
//	apply    every replica, pure: (state, Env, command) -> Result, Effects
//	effect   the leader acts on the world: wakes, arms the pulse  (partition)
//
// Losing an effect costs latency and never correctness; everything durable is in
// the state.
package fsm
