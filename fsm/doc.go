// Package fsm is the vocabulary of the deterministic state machines of Peeklock: commands, results, codes, settings, limits, and
// the table of kinds of commands. The machines derive the state of every entity, message and lock from the entries of a log alone.
//
// There are two state machines, each a package below this one. fsm/queue runs in a message partition and holds the queues, topics
// and subscriptions that are placed there, with their messages, locks and rules. fsm/catalog runs in
// partition 0 and holds the namespaces and entities, their access rules, the members of the
// cluster, and the placement of partitions. Both use fsm/answers, which makes commands exactly-once, and fsm/image.
//
// Package partition applies log entries, takes images and carries out effects. Packages cluster,
// amqp and admin use the types of commands, results and settings. The package does no input or
// output: bodies of messages are stored through the interface [Bodies], snapshots are written to an
// io.Writer. It has no logs, metrics or configuration.
//
// A state machine depends on three inputs only: its own state, the [Env] of the log entry, and the
// bytes of the command. It reads no clock, draws no random number, starts no goroutine and ranges
// over no map, so all replicas that apply the same entries hold the same state.
//
// A command passes through three steps, of which only the second belongs to this package:
//
//	prepare  the leader stamps time and identity into the entry       (partition)
//	apply    every replica, pure: (state, Env, command) -> Result      (fsm)
//	effect   the leader notifies receivers and schedules a pulse      (partition)
//
// The loss of an effect costs latency and never correctness: everything durable is in the state.
//
// The bytes of commands, results and images are formats, in the encoding of package fsm/fields; see [FormatLevel] for how
// they change.
package fsm
