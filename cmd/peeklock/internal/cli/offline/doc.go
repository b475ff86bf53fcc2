// Package offline has the commands that need no running member.
//
//	raft_log.go    raft-log cut, and the table of commands
//	skip_entry.go  raft-log show and skip, for an entry that stops every replica
//	replay.go      debug replay, for developers
//	version.go     version
package offline
