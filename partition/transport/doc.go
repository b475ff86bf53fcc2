// Package transport carries raft's requests between the replicas of a group, and guards raft against
// defects of its own network transport.
//
//	framed stream    requests and answers as frames (frame.go), to every member that knows them
//	other stream     raft.NetworkTransport, in raft's own encoding: to members of earlier releases, and for questions
//
// Package partition creates [Streams] and a [Transport] for each raft instance. The package does not
// dial by itself, does not know the members of a group, and decides no elections: it reports refused
// votes and streams that a peer has closed, and lets partition serve streams that are not raft's.
//
// Invariants:
//
//   - Heartbeats go through raft's main goroutine.
//   - A vote is answered only by the replica that was asked, named in the request.
//   - A frame is taken whole or ends its stream. Nothing is allocated that the peer has not sent, beyond 8 MiB.
//   - A pipeline is closed after an answer at which raft stops reading.
//   - Closing the streams unblocks every goroutine that reads from one.
package transport
