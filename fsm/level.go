package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// FormatLevel is the highest format level that this binary knows.
//
// A format level is a number for a set of formats: which kinds of commands a binary of that level
// may write and in which versions, and therefore the contents of logs, images, backups, gossip and
// results. Every change that an older binary would refuse or read differently is a new level,
// however small it is. A binary reads all levels up to its own, and writes that of the cluster
// (Catalog.FormatLevel), which rises when all members know the next one. A change of format
// therefore has two parts: the code that reads it, with a new FormatLevel here, and the code that
// writes it if Catalog.FormatLevel permits it.
//
//	1  the formats in testdata/formats
const FormatLevel uint32 = 1

// FormatDraft is the draft of the formats of level 1. Until release 0.1.0 it rises in each commit that changes a golden
// file of a format, and nothing converts between drafts: a binary refuses folders, backups and members of another one.
// TestDraftRisesWithTheFormats of package arch fails when it was forgotten.
const FormatDraft uint32 = 15

// RaiseLevel records that every member knows a format level, which must be above 0: from now on its
// formats may be written, and a binary with a lower FormatLevel can no longer participate. The
// level never falls: PreconditionFails, as for a catalog without a cluster.
//
// In the catalog it is the level of the cluster, and PreconditionFails above the one at which an operator holds it. In the log of a message partition it is the level
// of its state machine, which knows no other: the leader writes the command when it learns that the
// cluster has a higher level, and from that entry on all replicas behave as the level says,
// whatever their members have learned.
type RaiseLevel struct{ Level uint32 }

// HoldLevel sets the level above which the cluster does not rise, 0 for none: an operator holds it until it is certain that
// the release before will not be needed again. PreconditionFails below the level of the cluster, which never falls, and
// for a catalog without a cluster.
type HoldLevel struct{ Max uint32 }

// LevelOf returns the format level from which on a state machine performs a command.
func LevelOf(c Command) uint32 { return c.kind().Level() }

func (RaiseLevel) kind() Kind                           { return KindRaiseLevel }
func (c RaiseLevel) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c RaiseLevel) Check() Code { return CodeIf(c.Level != 0) }

func (c *RaiseLevel) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Level)
}

func (HoldLevel) kind() Kind                           { return KindHoldLevel }
func (c HoldLevel) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (HoldLevel) Check() Code { return OK }

func (c *HoldLevel) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Max)
}
