// Package rpc carries requests between members: commands and locks for the replicas of the other
// member, and queries. There is one connection per ordered pair of members; frames collected during
// a write are written together. Long replies are written one at a time between them.
//
//	Conn.Submit, Lock, Query ─► frame ─► Serve ─► Host.LocalReplica, Host.AnswerQuery
//	AnswerHandler, Reply     ◄─ frame ◄─
//
// Package cluster creates the Client, and package client sends commands over its Conns; package cluster
// serves the connections that package peer has accepted, and registers the handlers of queries. This package does not choose members, does not
// retry, and does not know the meaning of a query.
//
// Invariants:
//
//   - Every request is answered exactly once: with the answer of the other member, as Refused when it
//     was certainly not sent, or as Unknown when the connection broke.
//   - No command reaches a log before it was verified: one that does not decode would stop every
//     replica that applies it.
//   - The number of outstanding requests of another member is bounded, and so are the bytes that wait to
//     be written to a member that does not read.
//   - A connection ends by silence, not by slowness: deadlines are for progress, and while a frame arrives in
//     parts the server sends pongs.
//   - An answer waits for one long reply at most, and never while one is copied: it may be given by the goroutine
//     that applies entries.
//   - A pong carries the clocks of the member that sends it, for Client.OnClock.
//   - No lock is held while a replica, a handler or a connection is called.
//   - The numbers of frames, queries and statuses are wire format: they are never reused.
package rpc
