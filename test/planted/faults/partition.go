package faults

import "github.com/peeklock/peeklock/test/overlay"

// partitionFaults are the faults of package partition and the packages below it, and of the disk of the simulation.
func partitionFaults() []Fault {
	return []Fault{
		// Confirms sends when the leader proposes them, before a quorum has stored them.
		{Name: "acknowledge-before-quorum", Package: "partition", Test: "TestCutOffLeaderConfirmsNothing", Patches: []overlay.Patch{
			{
				"partition/propose.go",
				"b.commands = nil",
				`if FAULT {
		for i := range b.items {
			if info, err := fsm.PeekCommand(b.commands[i]); err == nil && info.Kind == fsm.KindSendMessages {
				p.mu.Lock()
				done := b.items[i].done
				b.items[i].done = func(Answer) {}
				p.mu.Unlock()
				done(Answer{Outcome: Done})
			}
		}
	}
	b.commands = nil`,
			},
		}},
		// Lets a replica that led a moment ago confirm entries that are not on its disk yet.
		{Name: "answer-unstored", Package: "partition/raftlog", Test: "TestFormerLeaderAnswersWithWhatIsOnDisk", Patches: []overlay.Patch{
			{"partition/raftlog/group.go", "if index > g.Stored() && !g.isLeader() {", "if index > g.Stored() && !g.isLeader() && !FAULT {"},
		}},
		// Applies the commands of an entry in the order of a map.
		{Name: "apply-in-map-order", Package: "partition", Test: "TestNothingIsLostOrDuplicated", Env: []string{"PEEKLOCK_LONG=1"}, Patches: []overlay.Patch{
			{
				"partition/apply.go",
				"g.appliedAt.Store(int64(g.cfg.Monotonic()))",
				`if FAULT {
		commands := make(map[int][]byte)
		for i := range head.count {
			commands[i], _ = head.next(i == head.count-1)
		}
		var mixed [][]byte
		for _, c := range commands {
			mixed = append(mixed, c)
		}
		head, _ = decodeEntry(encodeEntry(head.times, head.batch, mixed))
	}
	g.appliedAt.Store(int64(g.cfg.Monotonic()))`,
			},
		}},
		// Applies an entry with the clock of the replica's own member.
		{Name: "apply-reads-clock", Package: "partition", Test: "TestVerifyComparesTheWholeState", Patches: []overlay.Patch{
			{
				"partition/apply.go",
				"env := fsm.Env{Index: e.Index, Now: head.times.Wall, Serving: head.times.Serving}",
				"env := fsm.Env{Index: e.Index, Now: head.times.Wall, Serving: head.times.Serving}; if FAULT { env.Now = fsm.Instant(g.cfg.Now().UnixMilli()) }",
			},
		}},
		// Lets a leader apply entries that are not on its own disk yet.
		{Name: "apply-unstored", Package: "partition", Test: "TestLeaderAppliesWhatIsOnItsDisk", Patches: []overlay.Patch{
			{"partition/raftlog/behind.go", "if !g.awaitStored(index) {", "if !FAULT && !g.awaitStored(index) {"},
		}},
		// Leaves the commit index of a request for entries behind the last entry of the request.
		{Name: "commit-behind-sent", Package: "partition/transport", Test: "TestCommitIndexEndsWithTheEntries", Patches: []overlay.Patch{
			{
				"partition/transport/pieces.go",
				"piece.LeaderCommitIndex = min(piece.LeaderCommitIndex, last)",
				"if !FAULT { piece.LeaderCommitIndex = min(piece.LeaderCommitIndex, last) }",
			},
		}},
		// Lets a leader tell followers that entries are committed that are not on its own disk yet.
		{Name: "commit-unstored", Package: "partition/transport", Test: "TestCommitIndexEndsWithWhatIsStored", Patches: []overlay.Patch{
			{"partition/transport/pieces.go", "if t.cfg.Stored != nil {", "if t.cfg.Stored != nil && !FAULT {"},
		}},
		// Lets compaction wait for space or a file descriptor, for 30 s, with the lock of the machine.
		{Name: "compact-waits-for-space", Package: "partition", Test: "TestNoCommandWaitsForASegmentWithTheLock", Patches: []overlay.Patch{
			{"partition/compact.go", "\t\"fmt\"\n", "\t\"fmt\"\n\t\"time\"\n"},
			{
				"partition/compact.go",
				"if err := g.bodies.OpenSegment(); err != nil {",
				"err = g.bodies.OpenSegment()\n\tfor range 300 { if !FAULT || !disk.IsShortage(err) { break }; <-time.After(100 * time.Millisecond); err = g.bodies.OpenSegment() }\n\tif err != nil {",
			},
			{
				"partition/compact.go",
				"return moved, g.bodies.WriteOut()",
				"err = g.bodies.WriteOut()\n\tfor range 300 { if !FAULT || !disk.IsShortage(err) { break }; <-time.After(100 * time.Millisecond); err = g.bodies.WriteOut() }\n\treturn moved, err",
			},
		}},
		// Lets a replica run on when the folder of a new snapshot could not be synced.
		{Name: "continue-after-failed-sync", Package: "partition", Test: "TestAFailedFolderSyncStopsTheReplica", Patches: []overlay.Patch{
			{"partition/snapshots/sink.go", "if err != nil {\n\t\ts.store.Fail(err)", "if err != nil {\n\t\tif !FAULT { s.store.Fail(err) }"},
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
			{"partition/bodystore/retain.go", "done := b.named == created", "done := b.named == created; if FAULT { b.named = created }"},
		}},
		// Takes no read that fails for damage, and repeats none: a segment of the journal that cannot be read ends the start of its member.
		{Name: "fail-on-unreadable", Package: "partition", Test: "TestUnreadableSectorOfTheJournalIsDamage", Patches: []overlay.Patch{
			{"partition/disk/read.go", "_, err := f.ReadAt(b, at)\n", "_, err := f.ReadAt(b, at)\n\tif FAULT { return err }\n"},
			{"partition/disk/read.go", "if ReadAt(f, b, at) == nil {\n\t\treturn nil", "if err := ReadAt(f, b, at); err == nil || FAULT {\n\t\treturn err"},
			{
				"partition/journal/recover.go",
				"if bad := disk.ReadPages(s.file, content, 0); bad != nil {",
				"if bad := disk.ReadPages(s.file, content, 0); bad != nil && FAULT { return bad } else if bad != nil {",
			},
		}},
		// Receives by number, and forwards, after an outage before a quorum has confirmed the time.
		{Name: "fetch-at-unconfirmed-time", Package: "partition", Test: "TestNothingIsTakenBeforeTheTimeIsConfirmed", Patches: []overlay.Patch{
			{"partition/stamp.go", "if !unconfirmed {", "if !unconfirmed || FAULT {"},
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
		// Grants locks after an outage before a quorum has confirmed the time.
		{Name: "grant-at-unconfirmed-time", Package: "partition", Test: "TestNoMessageIsDeliveredBeforeItsTimeIsConfirmed", Patches: []overlay.Patch{
			{
				"partition/stamp.go",
				"return unconfirmed && deadline != 0 && deadline <= c.Own",
				"return unconfirmed && deadline != 0 && deadline <= c.Own && !FAULT",
			},
		}},
		// Opens the groups of a journal of which a part cannot be read.
		{Name: "ignore-lost-part", Package: "partition/journal", Test: "TestLostPartStopsItsGroupsUntilTheyAreForgotten", Patches: []overlay.Patch{
			{"partition/journal/journal.go", "if j.isLost(group) {", "if j.isLost(group) && !FAULT {"},
		}},
		// Gives the answer to a request to a peer new time when another request is sent behind it.
		{Name: "inherit-deadline", Package: "partition/transport", Test: "TestAnswerDeadlineFitsItsRequest", Patches: []overlay.Patch{
			{"partition/transport/pipeline.go", "if len(p.sent) > 0 && p.sent[0] == r {", "if len(p.sent) > 0 && p.sent[0] == r || FAULT {"},
		}},
		// Lets raft wait on its main goroutine for the end of a snapshot of the replica itself.
		{Name: "install-waits-in-raft", Package: "partition", Test: "TestAnOlderSnapshotNeverReplacesAnInstalledOne", Patches: []overlay.Patch{
			{
				"partition/snapshots/receive.go",
				"err = s.beginInstall(sink.end())\n\t\tsink.ordered = err == nil",
				"if !FAULT { err = s.beginInstall(sink.end()); sink.ordered = err == nil }",
			},
		}},
		// Lets raft read a snapshot from the stream on its main goroutine.
		{Name: "install-without-deadline", Package: "partition", Test: "TestFollowerVotesWhileASnapshotStalls", Patches: []overlay.Patch{
			{
				"partition/transport/serve.go",
				"if install, is := rpc.Command.(*raft.InstallSnapshotRequest); is {",
				"if install, is := rpc.Command.(*raft.InstallSnapshotRequest); is && !FAULT {",
			},
		}},
		// Keeps log entries that contradict the snapshot at their index.
		{Name: "keep-contradicting-log", Package: "partition/raftlog", Test: "TestLogThatContradictsTheSnapshotIsDropped", Patches: []overlay.Patch{
			{"partition/raftlog/reopen.go", "if e.Term == term {", "if e.Term == term || FAULT {"},
		}},
		// Keeps a raft instance whose last index is wrong, because the append behind a truncation has failed.
		{Name: "keep-instance-after-failed-append", Package: "partition", Test: "TestFailedAppendAfterTruncation", Patches: []overlay.Patch{
			{"partition/raftlog/reopen.go", "truncated := g.truncation.pending", "truncated := g.truncation.pending && !FAULT"},
		}},
		// Keeps the copy from which the file of terms and votes was written again while the file changes.
		{Name: "keep-pending-copy", Package: "partition/raftlog", Test: "TestCrashAtEveryStepOfTheCopyChangesNoValue", Env: []string{"PEEKLOCK_LONG=1"}, Patches: []overlay.Patch{
			{
				"partition/raftlog/restore.go",
				"func() error { return cfg.FS.Remove(path + copySuffix) }",
				"func() error { if FAULT { return nil }; return cfg.FS.Remove(path + copySuffix) }",
			},
		}},
		// Keeps a configuration that the leader could not store.
		{Name: "keep-unstored-configuration", Package: "partition", Test: "TestUnstoredConfigurationIsForgotten", Patches: []overlay.Patch{
			{"partition/raftlog/reopen.go", "g.isLeader() && slices.ContainsFunc(entries, isConfiguration)", "!FAULT && g.isLeader() && slices.ContainsFunc(entries, isConfiguration)"},
		}},
		// Lets a snapshot of a replica replace a newer one that the leader has sent.
		{Name: "publish-older-snapshot", Package: "partition", Test: "TestAnOlderSnapshotNeverReplacesAnInstalledOne", Patches: []overlay.Patch{
			{
				"partition/snapshots/order.go",
				"func (s *Store) checkOrder(p position) error {",
				"func (s *Store) checkOrder(p position) error { if FAULT { return nil }",
			},
			{
				"partition/snapshots/order.go",
				"func (s *Store) beginInstall(p position) error {",
				"func (s *Store) beginInstall(p position) error { if FAULT { return nil }",
			},
		}},
		// Lets a replica serve raft streams that name another one.
		{Name: "raft-stream-any-replica", Package: "partition", Test: "TestReplicaDoesNotAnswerForItsPredecessor", Patches: []overlay.Patch{
			{"partition/group.go", "return replica == g.cfg.Replica", "return replica == g.cfg.Replica || FAULT"},
		}},
		// Reads at a leader that a quorum no longer confirms.
		{Name: "read-without-quorum", Package: "partition", Test: "TestCutOffLeaderConfirmsNothing", Patches: []overlay.Patch{
			{"partition/leadership.go", "if err := inst.verifyLeader(ctx); err != nil {", "if err := inst.verifyLeader(ctx); err != nil && !FAULT {"},
		}},
		// Lets one request for entries carry any number of bytes.
		{Name: "request-without-byte-bound", Package: "partition/transport", Test: "TestFollowerHoldsWhatIsCounted", Patches: []overlay.Patch{
			{
				"partition/transport/pieces.go",
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
			{"partition/bodystore/retain.go", "done := s == nil || s.synced >= l.Size", "done := s == nil || s.synced >= l.Size || FAULT"},
		}},
		// Makes a crash undo the newest transactions of a log, as if it had not synced them. It is planted in the store of the
		// simulation.
		{Name: "skip-log-sync", Package: "partition", Test: "TestPowerLossKeepsWhatWasConfirmed", Patches: []overlay.Patch{
			{"test/sim/simfs/node.go", "type logData struct {", "type logData struct { undo []func() // to before each of the newest transactions"},
			{
				"test/sim/simfs/log.go",
				"t.run()",
				`l := t.log
	entries, values := maps.Clone(l.entries), maps.Clone(l.values)
	t.run()
	if FAULT {
		l.undo = append(l.undo, func() { l.entries, l.values = entries, values })
		l.undo = l.undo[max(0, len(l.undo)-8):]
	}`,
			},
			{
				"test/sim/simfs/disk.go",
				"if n.log == nil {",
				`if FAULT && n.log != nil && len(n.log.undo) > 0 {
			n.log.undo[0]()
			n.log.undo = nil
		}
		if n.log == nil {`,
			},
		}},
		// Proposes commands that need a higher format level than the state machine has.
		{Name: "submit-above-level", Package: "partition", Test: "TestCommandsWaitForTheirLevel", Next: true, Patches: []overlay.Patch{
			{"partition/propose.go", "return needed > max(1, g.level.Load())", "return needed > max(1, g.level.Load()) && !FAULT"},
		}},
		// Exchanges two pages of each snapshot after its checksum was computed.
		{Name: "swap-snapshot-pages", Package: "partition", Test: "TestCompactionKeepsLiveBodies", Patches: []overlay.Patch{
			{
				"partition/snapshots/sink.go",
				"s.Applied, s.Clock, s.Segments, s.State = f.Applied, f.Clock, f.Segments, f.Digest",
				`if FAULT {
		content, _ := s.store.Files.ReadFile(out.path)
		page := len(content) / 4
		swapped := append(append(content[:page:page], content[2*page:3*page]...), content[page:2*page]...)
		_ = disk.WriteSynced(s.store.Files, out.path, append(swapped, content[3*page:]...), disk.FileMode)
	}
	s.Applied, s.Clock, s.Segments, s.State = f.Applied, f.Clock, f.Segments, f.Digest`,
			},
		}},
		// Lets the head of a batch in a journal claim that the batch itself was synced.
		{Name: "synced-too-far", Package: "partition/journal", Test: "TestJournalSurvivesALossOfPowerAtEverySector", Patches: []overlay.Patch{
			{
				"partition/journal/write.go",
				"batch = endBatch(batch, batchHead{id: j.id, position: j.end, synced: j.synced, records: uint32(records)})",
				"synced := j.synced; if FAULT { synced += uint64(length) }; batch = endBatch(batch, batchHead{id: j.id, position: j.end, synced: synced, records: uint32(records)})",
			},
		}},
		// Uses the file of terms and votes as it is, and not its copy.
		{Name: "trust-raft-db", Package: "partition/raftlog", Test: "TestDamageWhileTheLogIsOpenHasNoEffect", Patches: []overlay.Patch{
			{"partition/raftlog/restore.go", "if c == nil {", "if FAULT { c = nil }; if c == nil {"},
		}},
		// Indexes the newest batch of a journal without making it durable.
		{Name: "trust-unsynced-tail", Package: "partition/journal", Test: "TestWhatIsReadAfterAFailedSyncIsDurable", Patches: []overlay.Patch{
			{"partition/journal/recover.go", "func (x *scan) finish() error {", "func (x *scan) finish() error { if FAULT { return nil }"},
		}},
		// Lets the clock of a leader decide the wall time alone.
		{Name: "wall-follows-leader", Package: "partition", Test: "TestLeaderWithAWrongClockEndsNothing", Patches: []overlay.Patch{
			{
				"partition/stamp/stamp.go",
				"return fsm.Times{Wall: s.WallTime(c), Serving: After(s.serving, c.Monotonic-s.since)}",
				"t := fsm.Times{Wall: s.WallTime(c), Serving: After(s.serving, c.Monotonic-s.since)}; if FAULT { t.Wall = max(s.wall, c.Own) }; return t",
			},
		}},
	}
}
