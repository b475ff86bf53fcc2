package faults

import "github.com/peeklock/peeklock/test/overlay"

// partitionFaults are the faults of package partition and the packages below it, and of the disk of the simulation.
func partitionFaults() []Fault {
	return []Fault{
		// Leaves the commit index of a request for entries behind the last entry of the request.
		{Name: "commit-behind-sent", Package: "partition/transport", Test: "TestCommitIndexEndsWithTheEntries", Patches: []overlay.Patch{
			{
				"partition/transport/append.go",
				"piece.LeaderCommitIndex = min(piece.LeaderCommitIndex, last)",
				"if !FAULT { piece.LeaderCommitIndex = min(piece.LeaderCommitIndex, last) }",
			},
		}},
		// Lets a leader tell followers that entries are committed that are not on its own disk yet.
		{Name: "commit-unstored", Package: "partition/transport", Test: "TestCommitIndexEndsWithWhatIsStored", Patches: []overlay.Patch{
			{"partition/transport/append.go", "if t.cfg.Stored != nil {", "if t.cfg.Stored != nil && !FAULT {"},
		}},
		// Counts the pieces of a request that a follower has taken when it answers again.
		{Name: "count-pieces-late", Package: "partition/transport", Test: "TestTakenEntriesAreCountedWhenTheFollowerFails", Patches: []overlay.Patch{
			{
				"partition/transport/append.go",
				"err := t.appendPiece(id, target, piece, &answer, taken == 0)",
				"err := t.appendPiece(id, target, piece, &answer, taken == 0 || FAULT)",
			},
		}},
		// Lets a caller take the name of a file for durable while its folder is still being synced.
		{Name: "count-unsynced-names", Package: "partition/bodystore", Test: "TestNamesAreDurableWhenSyncReturns", Patches: []overlay.Patch{
			{"partition/bodystore/store.go", "done := b.named == created", "done := b.named == created; if FAULT { b.named = created }"},
		}},
		// Sends the first piece of a large AppendEntries alone and reports success for all of it.
		{Name: "follower-counts-unsent", Package: "partition/transport", Test: "TestFollowerHoldsWhatIsCounted", Patches: []overlay.Patch{
			{
				"partition/transport/append.go",
				"if err != nil || taken == len(args.Entries) || time.Since(begun) > appendTimeMax || !t.stillLeads(id, args.Term) {",
				"if FAULT { return nil }; if err != nil || taken == len(args.Entries) || time.Since(begun) > appendTimeMax || !t.stillLeads(id, args.Term) {",
			},
			{
				"partition/transport/pipeline.go",
				"whole: args, answer: resp, last: next == len(args.Entries), begun: time.Now(),",
				"whole: args, answer: resp, last: next == len(args.Entries) || FAULT, begun: time.Now(),",
			},
		}},
		// Frees the oldest segment of a journal although groups need entries in it.
		{Name: "free-segment-early", Package: "partition/journal", Test: "TestSegmentsAreFreed", Patches: []overlay.Patch{
			{"partition/journal/clean.go", "case needed == 0:", "case needed == 0 || FAULT:"},
			{"partition/journal/clean.go", "if j.failed != nil || oldest.live > 0 {", "if j.failed != nil || (oldest.live > 0 && !FAULT) {"},
		}},
		// Opens the groups of a journal of which a part cannot be read.
		{Name: "ignore-lost-part", Package: "partition/journal", Test: "TestLostPartStopsItsGroupsUntilTheyAreForgotten", Patches: []overlay.Patch{
			{"partition/journal/journal.go", "if j.isLost(group) {", "if j.isLost(group) && !FAULT {"},
		}},
		// Gives the answer to a request to a peer new time when another request is sent behind it.
		{Name: "inherit-deadline", Package: "partition/transport", Test: "TestAnswerDeadlineFitsItsRequest", Patches: []overlay.Patch{
			{"partition/transport/pipeline.go", "if len(p.sent) > 0 && p.sent[0] == r {", "if len(p.sent) > 0 && p.sent[0] == r || FAULT {"},
		}},
		// Lets raft read a snapshot from the stream on its main goroutine.
		{Name: "install-without-deadline", Package: "partition", Test: "TestFollowerVotesWhileASnapshotStalls", Patches: []overlay.Patch{
			{
				"partition/transport/transport.go",
				"if install, is := rpc.Command.(*raft.InstallSnapshotRequest); is {",
				"if install, is := rpc.Command.(*raft.InstallSnapshotRequest); is && !FAULT {",
			},
		}},
		// Lets one request for entries carry any number of bytes.
		{Name: "request-without-byte-bound", Package: "partition/transport", Test: "TestFollowerHoldsWhatIsCounted", Patches: []overlay.Patch{
			{
				"partition/transport/append.go",
				"if i > 0 && size > requestBytesMax || i == frameEntriesMax {",
				"if i > 0 && size > requestBytesMax && !FAULT || i == frameEntriesMax {",
			},
		}},
		// Delivers bodies whose checksum is wrong.
		{Name: "skip-body-checksum", Package: "partition/bodystore", Test: "TestDamagedSegmentIsRefused", Patches: []overlay.Patch{
			{"partition/bodystore/read.go", "_, body, err := recordBody(buf, w.ref.Size)", "_, body, err := recordBody(buf, w.ref.Size); if FAULT { err = nil }"},
		}},
		// Lists segments in a snapshot that were not synced.
		{Name: "skip-body-sync", Package: "partition", Test: "TestPowerLossKeepsWhatWasConfirmed", Patches: []overlay.Patch{
			{"partition/bodystore/store.go", "done := s == nil || s.synced >= l.Size", "done := s == nil || s.synced >= l.Size || FAULT"},
		}},
		// Makes a crash undo the newest transactions of a log, as if it had not synced them. It is planted in the store of the
		// simulation.
		{Name: "skip-log-sync", Package: "partition", Test: "TestPowerLossKeepsWhatWasConfirmed", Patches: []overlay.Patch{
			{"test/sim/simfs/log.go", "type logData struct {", "type logData struct { undo []func() // to before each of the newest transactions"},
			{
				"test/sim/simfs/log.go",
				"t.run()",
				"l := t.log; entries, values := maps.Clone(l.entries), maps.Clone(l.values); t.run(); if FAULT { l.undo = append(l.undo, func() { l.entries, l.values = entries, values }); if len(l.undo) > 8 { l.undo = slices.Delete(l.undo, 0, 1) } }",
			},
			{
				"test/sim/simfs/node.go",
				"if n.log == nil {",
				"if FAULT && n.log != nil && len(n.log.undo) > 0 { n.log.undo[0](); n.log.undo = nil }; if n.log == nil {",
			},
		}},
		// Lets the head of a batch in a journal claim that the batch itself was synced.
		{Name: "synced-too-far", Package: "partition/journal", Test: "TestJournalSurvivesALossOfPowerAtEverySector", Patches: []overlay.Patch{
			{
				"partition/journal/journal.go",
				"batch = endBatch(batch, batchHead{id: j.id, position: j.end, synced: j.synced, records: uint32(records)})",
				"synced := j.synced; if FAULT { synced += uint64(length) }; batch = endBatch(batch, batchHead{id: j.id, position: j.end, synced: synced, records: uint32(records)})",
			},
		}},
		// Indexes the newest batch of a journal without making it durable.
		{Name: "trust-unsynced-tail", Package: "partition/journal", Test: "TestWhatIsReadAfterAFailedSyncIsDurable", Patches: []overlay.Patch{
			{"partition/journal/recover.go", "func (x *scan) finish() error {", "func (x *scan) finish() error { if FAULT { return nil }"},
		}},
	}
}
