// Package transport carries raft's requests and their answers between the replicas of a group, as frames (frame.go). It takes the
// place of raft.NetworkTransport, whose defects docs/raft-notes.md describes.
//
// Package partition creates [Streams] and a [Transport] for each raft instance. The package does not
// dial by itself, does not know the members of a group, and decides no elections: it reports refused
// votes and streams that a peer has closed, and lets partition serve streams that are not raft's.
//
// Invariants:
//
//   - Heartbeats go through raft's main goroutine.
//   - A stream leads to one replica, which is named when it is dialled. No other one answers.
//   - A frame is taken whole or ends its stream. Checksums cover all of it, and nothing of a damaged one reaches raft. Nothing is allocated that the peer has not sent, beyond 8 MiB.
//   - A pipeline is closed after an answer at which raft stops reading.
//   - Closing the streams unblocks every goroutine that reads from one.
package transport
