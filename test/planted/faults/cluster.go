package faults

import "github.com/peeklock/peeklock/test/overlay"

// clusterFaults are the faults of package cluster, the packages below it, and the command.
func clusterFaults() []Fault {
	return []Fault{
		// Gives a member without data the id that a member of its name had: with an empty disk it comes back as a voter that
		// has forgotten everything.
		{Name: "bootstrap-empty-voter", Package: "test/sim", Test: "TestSimulation", Env: []string{"PEEKLOCK_SIM_SEED=1", "PEEKLOCK_SIM_FAULTS=lose disk"}, Patches: []overlay.Patch{
			{
				"cluster/start.go",
				"n.self = n.dataDir.Identity().Member",
				`if FAULT && n.dataDir.Identity().Cluster == "" {
		member := make([]byte, len(rand.Text()))
		for i := range member {
			member[i] = 'A' + config.Name[i%len(config.Name)]%26
		}
		if err = n.dataDir.Update(func(id *datadir.Identity) { id.Member = fsm.MemberID(member) }); err != nil {
			return nil, fmt.Errorf("open member: %w", err)
		}
	}
	n.self = n.dataDir.Identity().Member`,
			},
		}},
		// Lets wall time follow any step of all clocks together.
		{Name: "follow-all-clocks", Package: "test/sim", Test: "TestFaultsOccur", Patches: []overlay.Patch{
			{"cluster/clocks/steady.go", "if step.Abs() > bound {", "if step.Abs() > bound && !FAULT {"},
		}},
		// Makes a drained member prevent automatic rebalances for as long as it is drained.
		{Name: "drained-stops-rebalance", Package: "cluster", Test: "TestInterruptedRemovalIsShownAndDoesNotStopRebalancing", Env: []string{"PEEKLOCK_LONG=1"}, Patches: []overlay.Patch{
			{
				"cluster/move/balancer.go",
				"draining = draining || time.Since(since) < drainedIntervalsMax*b.Interval",
				"draining = draining || time.Since(since) < drainedIntervalsMax*b.Interval || FAULT",
			},
		}},
		// Answers from the catalog of a cluster that is not bootstrapped yet.
		{Name: "empty-catalog-answers", Package: "cluster/entities", Test: "TestStartingClusterIsBusy", Patches: []overlay.Patch{
			{
				"cluster/query/replicas.go",
				`if starting = catalog != nil && catalog.ClusterID() == ""; !starting {`,
				`if starting = catalog != nil && catalog.ClusterID() == "" && !FAULT; !starting {`,
			},
		}},
		// Reports a request with an unknown outcome as failed instead of sending it again.
		{Name: "give-up-unknown", Package: "cluster/client", Test: "TestPartitionClientRetriesWithTheSameBytes", Patches: []overlay.Patch{
			{
				"cluster/client/submit.go",
				"q.state = requestQueued",
				"if FAULT && q.unknown { p.finish(q, fsm.Result{Code: fsm.ServerBusy}); return }; q.state = requestQueued",
			},
		}},
		// Keeps a change of the identity that could not be saved.
		{Name: "keep-unsaved-identity", Package: "cluster/bootstrap", Test: "TestPledgeThatIsNotOnDiskIsNotGranted", Patches: []overlay.Patch{
			{"cluster/datadir/dir.go", "return d.save(changed)", "if FAULT { d.identity = changed }; return d.save(changed)"},
		}},
		// Promises two members to bootstrap different clusters with them.
		{Name: "pledge-twice", Package: "cluster/bootstrap", Test: "TestPledgeBindsUntilReleased", Patches: []overlay.Patch{
			{
				"cluster/bootstrap/bootstrap.go",
				"if pledge != nil && !slices.Equal(pledge, initial) {",
				"if pledge != nil && !slices.Equal(pledge, initial) && !FAULT {",
			},
		}},
		// Makes the preStop hook end, and so the process, when the removal of its member is refused.
		{Name: "prestop-gives-up", Package: "cmd/peeklock", Test: "TestPrestopWaitsWhileTheMemberIsNeeded", Patches: []overlay.Patch{
			{
				"cmd/peeklock/internal/cli/kubernetes/prestop.go",
				"case needsTime(err):",
				`case needsTime(err) && (!client.IsCode(err, "InvalidArgument") || !FAULT):`,
			},
		}},
		// Lets a source send a batch forever that its destination refuses as outdated.
		{Name: "refused-batch-stays", Package: "cluster/forwarding", Test: "TestRefusedBatchIsSentInANewEpoch", Patches: []overlay.Patch{
			{
				"cluster/forwarding/epoch.go",
				"func (f *Forwarder) renewBatch(ctx context.Context, task *forwardTask, group rpc.Group, batch *fsm.Result, refusal error) stepResult {",
				"func (f *Forwarder) renewBatch(ctx context.Context, task *forwardTask, group rpc.Group, batch *fsm.Result, refusal error) stepResult { if FAULT { return f.backOff(ctx, task, refusal) }",
			},
		}},
		// Takes back a pledge because of an answer that is older than the pledge.
		{Name: "release-by-old-answer", Package: "cluster/bootstrap", Test: "TestOldAnswerReleasesNoPledge", Patches: []overlay.Patch{
			{
				"cluster/bootstrap/bootstrap.go",
				"if b.pledges == pledges && hello.Member == pledge[0] && !hello.HasData && !slices.Equal(hello.ProposedMembers, pledge) {",
				"if (b.pledges == pledges || FAULT) && hello.Member == pledge[0] && !hello.HasData && !slices.Equal(hello.ProposedMembers, pledge) {",
			},
		}},
		// Makes the removal of a member plan once, and fail when another removal interferes.
		{Name: "removal-plans-once", Package: "cluster", Test: "TestMembersRemovedAtOnceKeepTheQuorum", Env: []string{"PEEKLOCK_LONG=1"}, Patches: []overlay.Patch{
			{"cluster/move/members.go", "return errors.Is(obstacle, errUndrained)", "return errors.Is(obstacle, errUndrained) || obstacle != nil && FAULT"},
		}},
		// Lets serve end in the folder of a removed member although it may start over there.
		{Name: "removed-stays", Package: "cmd/peeklock", Test: "TestServeStartsOverAfterARemoval", Patches: []overlay.Patch{
			{"cmd/peeklock/serve.go", "if s.RejoinRemoved {", "if s.RejoinRemoved && !FAULT {"},
		}},
		// Makes a removed member stop when its own catalog shows the removal, although the catalog's group may still need its
		// vote.
		{Name: "removed-voter-stops", Package: "cluster", Test: "TestRemovedMemberServesWhileItIsNeeded", Patches: []overlay.Patch{
			{
				"cluster/catalog.go",
				"if n.memberRecord(n.self).Removed && group.Status().Removed && len(n.retirer.Retired(placed)) == 0 {",
				"if n.memberRecord(n.self).Removed && (group.Status().Removed || FAULT) && len(n.retirer.Retired(placed)) == 0 {",
			},
		}},
		// Lets a restored cluster have the id of the cluster that was backed up.
		{Name: "restore-keeps-cluster-id", Package: "cluster/backup", Test: "TestEachRestoreIsAClusterOfItsOwn", Patches: []overlay.Patch{
			{
				"cluster/backup/restore.go",
				"return append(commands, fsm.RenameCluster{ClusterID: r.cluster})",
				"if FAULT { r.cluster = catalog.cluster; return commands }; return append(commands, fsm.RenameCluster{ClusterID: r.cluster})",
			},
		}},
		// Refuses to restore into a volume with the folder lost+found.
		{Name: "restore-needs-bare-volume", Package: "cluster/datadir", Test: "TestNewFolderMayBeTheRootOfAVolume", Patches: []overlay.Patch{
			{"cluster/datadir/dir.go", `return e.Name() != "lost+found"`, `return e.Name() != "lost+found" || FAULT`},
		}},
	}
}
