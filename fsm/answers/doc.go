// Package answers makes commands exactly-once: it remembers the answers to commands that may be repeated.
//
// Each state machine has a Table. [Table.Begin] tells whether a command was performed before; if it was not, [NewRecord] condenses
// its result, and [Table.Remember] keeps it until the requester confirms the answer. A Table is part of the state: it is in
// images and digests, and depends on nothing but the commands. It is not safe for concurrent use; what Freeze returns is.
package answers
