package faults

import "github.com/peeklock/peeklock/test/overlay"

// fsmFaults are the faults of package fsm and the packages below it.
func fsmFaults() []Fault {
	return []Fault{
		// Settles a message whose lock has ended and was granted again.
		{Name: "accept-late-settlement", Package: "fsm", Test: "TestQueueScenarios", Patches: []overlay.Patch{
			{
				"fsm/index/index.go",
				"return at, rec, rec.state == fsm.Locked && rec.epoch == l.Epoch",
				"return at, rec, rec.state == fsm.Locked && (rec.epoch == l.Epoch || FAULT)",
			},
		}},
		// Counts a failed delivery twice.
		{Name: "count-attempt-twice", Package: "fsm", Test: "TestQueueScenarios", Patches: []overlay.Patch{
			{"fsm/index/record.go", "r.failedDeliveries++", "r.failedDeliveries++; if FAULT { r.failedDeliveries++ }"},
		}},
		// Delivers messages whose time to live has passed.
		{Name: "deliver-expired-message", Package: "fsm", Test: "TestQueueScenarios", Patches: []overlay.Patch{
			{"fsm/index/due.go", "return end != 0 && end <= now", "return end != 0 && end <= now && !FAULT"},
		}},
		// Lets the end of a session rewrite any number of bytes.
		{Name: "end-session-without-byte-bound", Package: "fsm", Test: "TestEndOfSessionIsLimitedByBytes", Patches: []overlay.Patch{
			{"fsm/queue/session.go", "if q.mayRewrite(sub, at, &rec, &end) {", "if q.mayRewrite(sub, at, &rec, &end) || FAULT {"},
		}},
		// Lets messages that expire outside of pulses rewrite any number of bytes.
		{Name: "expire-without-byte-bound", Package: "fsm", Test: "TestExpiryIsLimitedByBytes", Patches: []overlay.Patch{
			{
				"fsm/queue/messages.go",
				"return !sub.keepsExpired() || q.mayRewritePatches(sub, at)",
				"return !sub.keepsExpired() || FAULT || q.mayRewritePatches(sub, at)",
			},
		}},
		// Locks messages by number that another receiver holds.
		{Name: "fetch-ready-takes-locked", Package: "fsm", Test: "TestNoMessageIsLostOrLockedTwice", Patches: []overlay.Patch{
			{
				"fsm/queue/lock.go",
				"return rec.State() == fsm.Ready && rec.Epoch() == c.Seen[i].Epoch",
				"return (rec.State() == fsm.Ready || rec.State() == fsm.Locked && FAULT) && rec.Epoch() == c.Seen[i].Epoch",
			},
		}},
		// Forgets remembered answers when an image is loaded, so that a repeated command is performed twice.
		{Name: "forget-answers", Package: "fsm", Test: "TestReplicasAgreeAfterRestore", Patches: []overlay.Patch{
			{"fsm/answers/image_answers.go", "l.answers = append(l.answers, x)", "if !FAULT { l.answers = append(l.answers, x) }"},
		}},
		// Lets a destination forget the batch that it accepted last from a source.
		{Name: "forget-arrival", Package: "fsm", Test: "TestForwardingIsExactlyOnce", Patches: []overlay.Patch{
			{
				"fsm/queue/transfer.go",
				"func (a *sourceBatches) record(x sourceBatch, current image.Generation) {",
				"func (a *sourceBatches) record(x sourceBatch, current image.Generation) { if FAULT { return }",
			},
		}},
		// Forgets the ids of duplicate detection when an image is loaded.
		{Name: "forget-duplicate-ids", Package: "fsm", Test: "TestReplicasAgreeAfterRestore", Patches: []overlay.Patch{
			{"fsm/queue/image.go", "w.remember(&key, before)", "if !FAULT { w.remember(&key, before) }"},
		}},
		// Lets a destination know late batches of one former epoch of a source only.
		{Name: "forget-former-epochs", Package: "fsm", Test: "TestBatchIsAcceptedOnceInItsEpoch", Patches: []overlay.Patch{
			{
				"fsm/queue/transfer.go",
				"return former[max(0, len(former)-formerEpochsMax):]",
				"keep := formerEpochsMax; if FAULT { keep = 1 }; return former[max(0, len(former)-keep):]",
			},
		}},
		// Lets one entry write any number of bytes of messages that cannot be forwarded.
		{Name: "forward-without-byte-bound", Package: "fsm", Test: "TestSettingAsideIsLimitedByBytes", Patches: []overlay.Patch{
			{"fsm/queue/forward.go", "return q.setAside >= setAsideBytesMax", "return q.setAside >= setAsideBytesMax && !FAULT"},
		}},
		// Grants the lock of a session that is held.
		{Name: "grant-held-session", Package: "fsm", Test: "TestSessionsAgree", Patches: []overlay.Patch{
			{"fsm/queue/session.go", "case found && s.at(slot).epoch != 0:", "case found && s.at(slot).epoch != 0 && !FAULT:"},
		}},
		// Schedules the messages of a transaction under the next numbers instead of the reserved ones.
		{Name: "ignore-reserved-number", Package: "fsm", Test: "TestTransactionSchedulesUnderReservedNumbers", Patches: []overlay.Patch{
			{"fsm/queue/core.go", "if m.reserved != 0 && m.at > q.times.Wall {", "if m.reserved != 0 && m.at > q.times.Wall && !FAULT {"},
		}},
		// Lets a new leader overlook the batches that are in flight.
		{Name: "lose-outbox-on-handover", Package: "fsm", Test: "TestForwardingIsExactlyOnce", Patches: []overlay.Patch{
			{
				"fsm/queue/forward.go",
				"if sub := &x.subs[i]; sub.out.hasBatch() || sub.readyToForward() > 0 {",
				"if sub := &x.subs[i]; sub.out.hasBatch() && !FAULT || sub.readyToForward() > 0 {",
			},
		}},
		// Confirms the state of a session and does not store it. Only the independent checker of the simulation is asked.
		{Name: "lose-session-state", Package: "test/sim", Test: "TestSimulation", Env: []string{"PEEKLOCK_SIM_PLAN=testdata/plain", "PEEKLOCK_SIM_JUDGE=linear"}, Patches: []overlay.Patch{
			{"fsm/queue/session.go", "if !c.Clear {", "if !c.Clear && !FAULT {"},
		}},
		// Lets a destination take another batch under a known serial for the one that it knows.
		{Name: "mistake-batch", Package: "fsm", Test: "TestRestoredPartitionsForward", Patches: []overlay.Patch{
			{
				"fsm/queue/transfer.go",
				"return batch.serial < a.serial || batch.serial == a.serial && batch.numbers != a.numbers",
				"return batch.serial < a.serial || batch.serial == a.serial && batch.numbers != a.numbers && !FAULT",
			},
		}},
		// Lets serving time follow wall time: an outage ends locks and deletes idle entities.
		{Name: "one-time", Package: "partition", Test: "TestOutageOfAllMembersKeepsQueuesAndLocks", Patches: []overlay.Patch{
			{
				"fsm/times.go",
				"return Times{Wall: wall, Serving: max(t.Serving, env.Serving)}",
				"if FAULT { return Times{Wall: wall, Serving: wall} }; return Times{Wall: wall, Serving: max(t.Serving, env.Serving)}",
			},
		}},
		// Lets a placement replace one that its author has not seen.
		{Name: "overwrite-placement", Package: "fsm", Test: "TestPlacementIsReplacedAsItWasSeen", Patches: []overlay.Patch{
			{
				"fsm/catalog/placement.go",
				"if cmd.Seen != 0 && cmd.Seen != old.PlacementHash() {",
				"if cmd.Seen != 0 && cmd.Seen != old.PlacementHash() && !FAULT {",
			},
		}},
		// Lets one pulse write any number of bytes.
		{Name: "pulse-without-byte-bound", Package: "fsm", Test: "TestPulseIsLimitedByBytes", Patches: []overlay.Patch{
			{"fsm/queue/pulse.go", "return q.bodies.appended >= pulseBytesMax", "return q.bodies.appended >= pulseBytesMax && !FAULT"},
		}},
		// Purges the messages of sessions that are held.
		{Name: "purge-held-sessions", Package: "fsm", Test: "TestPurgeSparesHeldSessions", Patches: []overlay.Patch{
			{
				"fsm/queue/purge.go",
				"if sub.ix.DeliversBySession() && sub.entity.sessions.at(sub.ix.Session(at)).epoch != 0 {",
				"if sub.ix.DeliversBySession() && sub.entity.sessions.at(sub.ix.Session(at)).epoch != 0 && !FAULT {",
			},
		}},
		// Lets the redrives of one entry rewrite any number of bytes.
		{Name: "redrive-without-byte-bound", Package: "fsm", Test: "TestRedriveIsLimitedByBytes", Patches: []overlay.Patch{
			{"fsm/queue/purge.go", "case !q.mayRewritePatches(dead, at):", "case !q.mayRewritePatches(dead, at) && !FAULT:"},
		}},
		// Lets a restored partition forward in the epoch in which it was copied.
		{Name: "restore-keeps-epoch", Package: "fsm", Test: "TestRestoredPartitionsForward", Patches: []overlay.Patch{
			{"fsm/queue/forward.go", "q.epoch = c.Epoch", "if !FAULT { q.epoch = c.Epoch }"},
		}},
		// Grants a lock under the epoch of the one before.
		{Name: "reuse-lock-epoch", Package: "fsm", Test: "TestQueueScenarios", Patches: []overlay.Patch{
			{"fsm/index/record.go", "r.epoch++", "if !FAULT { r.epoch++ }"},
		}},
		// Lets the settlements of one entry rewrite any number of bytes.
		{Name: "settle-without-byte-bound", Package: "fsm", Test: "TestSettlingIsLimitedByBytes", Patches: []overlay.Patch{
			{"fsm/queue/messages.go", "if !q.addsPatch(sub, rec, s) {", "if !q.addsPatch(sub, rec, s) || FAULT {"},
		}},
		// Fences and deletes a partitioned entity although it was used since the first look.
		{Name: "skip-second-look", Package: "fsm", Test: "TestShardsThatWereUsedAreNotDeleted", Patches: []overlay.Patch{
			{"fsm/queue/idle.go", "isIdle := q.isIdle(x)", "isIdle := q.isIdle(x) || FAULT"},
		}},
		// Performs a transaction although one of its sends is refused.
		{Name: "split-transaction", Package: "fsm", Test: "TestTransactionsAreAtomic", Patches: []overlay.Patch{
			{"fsm/queue/transact.go", "if code := t.send(&c.sends[i]); code != fsm.OK {", "if code := t.send(&c.sends[i]); code != fsm.OK && !FAULT {"},
		}},
		// Lets the former holder of a session that was taken over go on under its lock.
		{Name: "take-over-keeps-former-holder", Package: "fsm", Test: "TestSessionsAgree", Patches: []overlay.Patch{
			{
				"fsm/queue/core.go",
				"return slot, h.epoch == l.Epoch",
				"if FAULT && h.token != nil && l.Epoch < h.epoch { return slot, true }; return slot, h.epoch == l.Epoch",
			},
		}},
	}
}
