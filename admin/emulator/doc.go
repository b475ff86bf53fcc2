// Package emulator reads the Config.json of the official Service Bus emulator and creates what it lists in a cluster, so
// that scripts for the emulator need one changed line. cmd/peeklock calls it; all its requests go through Control.
//
//	Config.json ─→ Parse ─→ File ─→ Apply ─→ 1 namespaces
//	   comments      │                       2 queues, topics     without forwarding
//	   unknown ──→ Warnings                  3 subscriptions      with their first rule
//	   wrong ────→ error with a path         4 settings           forwarding included
//	   (lenient: left out, a warning)
//	                                         5 rules
//
// Forwarding comes last, so that entities may name each other in any order, or in a circle.
// Invariants: nothing is deleted but the rule $Default, and only where the file lists other rules. To apply a file twice,
// or at several members at once, has the same result as to apply it once. In an existing entity, settings that the file
// omits stay.
// The limits of the emulator (50 entities, a time to live of an hour, ...) do not apply. The package has no state; its
// functions are safe for concurrent use.
package emulator
