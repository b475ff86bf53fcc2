// Package rpc carries requests between members: commands and locks for the replicas of the other
// member, and queries. There is one connection per ordered pair of members; frames that gather while
// a write is under way are written together.
//
//	Conn.Submit, Lock, Query ─► frame ─► Serve ─► Host.LocalReplica, Host.AnswerQuery
//	AnswerHandler, Reply     ◄─ frame ◄─
//
// Package router uses a Client to send, package cluster serves the connections that package peer
// has accepted and registers what answers queries. This package does not choose members, retries
// nothing and does not know what a query is about.
//
// Invariants:
//
//   - Every request is answered exactly once: with the answer of the other member, as Refused when it
//     was certainly not sent, or as Unknown when the connection broke.
//   - No command reaches a log before it was verified: one that does not decode would stop every
//     replica that applies it.
//   - What another member can have outstanding here is bounded, and so is what waits to be written
//     to one that does not read.
//   - No lock is held while a replica, a handler or a connection is called.
//   - The numbers of frames, queries and statuses are wire format: they are never reused.
package rpc
