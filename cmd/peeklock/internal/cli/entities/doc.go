// Package entities has the commands of queues, topics, subscriptions, rules, namespaces and keys, and import.
//
//	nouns.go resource.go settings.go  queues, topics, subscriptions
//	rule.go namespace.go key.go       the other nouns
//	counts.go                         counts of a queue or subscription, for other commands
//	import.go remote.go               Config.json of the emulator; package admin/emulator reads it
//
// Everything goes through the control API. Invariant: no secret is in a list; only key show and the commands that create
// or change a key print one.
package entities
