// Package atom is the codec of the administration API of the service: paths, ATOM entries and feeds, and the
// descriptions of entities and rules in them.
//
//	path ─ ParsePath ─> Target            body ─ ReadDescription ─> Element ─> entity.Settings, fsm.Rule, access rules
//	fsm.Entity, fsm.Rule ─ EntityDocument, RuleDocument, NewFeed ─> Document ─> bytes
//
// Its only caller is admin, which has the HTTP handlers. The package knows no request, no credential and no cluster. It
// checks the form of what clients send; package entity checks the values.
//
// Invariants:
//
//   - Reading a body takes bounded memory, whatever it holds: see xmlDepthMax and the limits beside it.
//   - What is written is read by every official client. Where one of them depends on a spelling that XML leaves open, a
//     comment names it.
//   - A rule that was read is written so that it can be read again.
package atom
