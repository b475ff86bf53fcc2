// Package offline has the commands that need no running member.
//
//	raft_log.go  raft-log cut
//	replay.go    debug replay, for developers
//	version.go   version
package offline
