// Package command builds the command tree from a table of nouns and verbs.
//
// A group of commands (packages entities, messages, operate, backups, kubernetes, offline) is a list of [Noun], whose verbs
// have help, arguments, flags, completion and a function. This package makes commands of cobra from them, and has the verbs
// that many nouns share: get, list, delete.
//
//	command.go   noun, verb, invocation; shared verbs
//	complete.go  what the shell offers
//	flags.go     values of flags
//	root.go      the root command
//
// A tree is for one run, because its flags hold the values.
package command
