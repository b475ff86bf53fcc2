// Package logging forwards the log of raft, which is written through hclog, to a [slog.Logger]. Package partition creates one logger
// for each instance of raft. It imports nothing of ours.
//
// A logger may be used concurrently.
package logging
