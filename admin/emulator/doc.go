// Package emulator reads the Config.json of the official Service Bus emulator and makes a
// cluster have what it lists, so that who used the emulator changes one line of a script.
//
//	Config.json ─→ Parse ─→ File ─→ Apply ─→ 1 namespaces
//	   comments      │                       2 queues, topics     without forwarding
//	   unknown ──→ Warnings                  3 subscriptions      with their first rule
//	   wrong ────→ error with a path         4 settings           forwarding included
//	                                         5 rules
//
// Forwarding comes last, so that entities may name each other in any order, or in a circle.
//
// What always holds: nothing is deleted but the rule $Default, and only where the file
// lists other rules. Applying a file twice, or at several members at once, ends as applying
// it once. What the file leaves out stays as it is in an entity that exists.
//
// The limits of the emulator (50 entities, an hour of life, ...) are not ours and do not
// apply. Nothing here is kept between calls; every function may be called by any goroutine.
package emulator
