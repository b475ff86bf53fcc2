package main

import "github.com/peeklock/peeklock/fsm/planted"

// check is the test that must fail while a fault is active.
type check struct {
	fault planted.Fault
	pkg   string   // of the test, relative to the module
	test  string   // name of the test, with subtests if needed
	env   []string // of the test process, besides PEEKLOCK_PLANTED
}

// checks lists the check of every planted fault, in the order of planted.Faults.
func checks() []check {
	return []check{
		{planted.AcceptLateSettlement, "fsm", "TestQueueScenarios", nil},
		{planted.AcknowledgeBeforeQuorum, "partition", "TestCutOffLeaderConfirmsNothing", nil},
		{planted.ApplyReadsClock, "partition", "TestVerifyComparesTheWholeState", nil},
		{planted.BootstrapEmptyVoter, "test/sim", "TestSimulation", []string{"PEEKLOCK_SIM_SEED=1", "PEEKLOCK_SIM_FAULTS=lose disk"}},
		{planted.BrowsingRemoves, "amqp", "TestBrowsingRemovesNothing", nil},
		{planted.BrowsingSkipsShards, "amqp", "TestBrowserShowsNewMessagesOfEveryShard", nil},
		{planted.CommitBehindSent, "partition/transport", "TestCommitIndexEndsWithTheEntries", nil},
		{planted.ContinueAfterFailedSync, "partition", "TestAFailedFolderSyncStopsTheReplica", nil},
		{planted.CountAttemptTwice, "fsm", "TestQueueScenarios", nil},
		{planted.CountPiecesLate, "partition/transport", "TestTakenEntriesAreCountedWhenTheFollowerFails", nil},
		{planted.CountUnsyncedNames, "partition/bodystore", "TestNamesAreDurableWhenSyncReturns", nil},
		{planted.DeliverExpiredMessage, "fsm", "TestQueueScenarios", nil},
		{planted.DrainedStopsRebalance, "cluster", "TestInterruptedRemovalIsShownAndDoesNotStopRebalancing", []string{"PEEKLOCK_LONG=1"}},
		{planted.EmptyCatalogAnswers, "cluster/router", "TestStartingClusterIsBusy", nil},
		{planted.EndSessionWithoutByteBound, "fsm", "TestEndOfSessionIsLimitedByBytes", nil},
		{planted.ExpireWithoutByteBound, "fsm", "TestExpiryIsLimitedByBytes", nil},
		{planted.FetchAtUnconfirmedTime, "partition", "TestNothingIsTakenBeforeTheTimeIsConfirmed", nil},
		{planted.FollowerCountsUnsent, "partition/transport", "TestFollowerHoldsWhatIsCounted", nil},
		{planted.ForgetAnswers, "fsm", "TestReplicasAgreeAfterRestore", nil},
		{planted.ForgetArrival, "fsm", "TestForwardingIsExactlyOnce", nil},
		{planted.ForgetDuplicateIDs, "fsm", "TestReplicasAgreeAfterRestore", nil},
		{planted.ForgetFormerEpochs, "fsm", "TestBatchIsAcceptedOnceInItsEpoch", nil},
		{planted.ForwardWithoutByteBound, "fsm", "TestSettingAsideIsLimitedByBytes", nil},
		{planted.FreeSegmentEarly, "partition/journal", "TestSegmentsAreFreed", nil},
		{planted.GiveUpUnknown, "cluster/router", "TestPartitionClientRetriesWithTheSameBytes", nil},
		{planted.GrantAtUnconfirmedTime, "partition", "TestNoMessageIsDeliveredBeforeItsTimeIsConfirmed", nil},
		{planted.GrantHeldSession, "fsm", "TestSessionsAgree", nil},
		{planted.IgnoreLostPart, "partition/journal", "TestLostPartStopsItsGroupsUntilTheyAreForgotten", nil},
		{planted.IgnoreReservedNumber, "fsm", "TestTransactionSchedulesUnderReservedNumbers", nil},
		{planted.InheritDeadline, "partition/transport", "TestAnswerDeadlineFitsItsRequest", nil},
		{planted.InstallWaitsInRaft, "partition", "TestAnOlderSnapshotNeverReplacesAnInstalledOne", nil},
		{planted.InstallWithoutDeadline, "partition", "TestFollowerVotesWhileASnapshotStalls", nil},
		{planted.KeepContradictingLog, "partition/raftlog", "TestLogThatContradictsTheSnapshotIsDropped", nil},
		{planted.LoseOutboxOnHandover, "fsm", "TestForwardingIsExactlyOnce", nil},
		{planted.MistakeBatch, "fsm", "TestRestoredPartitionsForward", nil},
		{planted.OneTime, "partition", "TestOutageOfAllMembersKeepsQueuesAndLocks", nil},
		{planted.OverwritePlacement, "fsm", "TestPlacementIsReplacedAsItWasSeen", nil},
		{planted.PaceLargePayload, "cmd/listen", "TestLargePayloadIsNotPaced", nil},
		{planted.PledgeTwice, "cluster/bootstrap", "TestPledgeBindsUntilReleased", nil},
		{planted.PrestopGivesUp, "cmd/peeklock", "TestPrestopWaitsWhileTheMemberIsNeeded", nil},
		{planted.PublishOlderSnapshot, "partition", "TestAnOlderSnapshotNeverReplacesAnInstalledOne", nil},
		{planted.PulseWithoutByteBound, "fsm", "TestPulseIsLimitedByBytes", nil},
		{planted.PurgeHeldSessions, "fsm", "TestPurgeSparesHeldSessions", nil},
		{planted.RaftStreamAnyReplica, "partition", "TestReplicaDoesNotAnswerForItsPredecessor", nil},
		{planted.ReadWithoutQuorum, "partition", "TestCutOffLeaderConfirmsNothing", nil},
		{planted.RefuseAtCommitOnly, "amqp", "TestLostLockIsRefusedInItsTransaction", nil},
		{planted.RefuseAttachAtOnce, "amqp", "TestAttachWaitsWhileTheBrokerIsBusy", nil},
		{planted.RefusedBatchStays, "cluster/forwarding", "TestRefusedBatchIsSentInANewEpoch", nil},
		{planted.ReleaseByOldAnswer, "cluster/bootstrap", "TestOldAnswerReleasesNoPledge", nil},
		{planted.RemovalPlansOnce, "cluster", "TestMembersRemovedAtOnceKeepTheQuorum", []string{"PEEKLOCK_LONG=1"}},
		{planted.RemovedStays, "cmd/peeklock", "TestServeStartsOverAfterARemoval", nil},
		{planted.RemovedVoterStops, "cluster", "TestRemovedMemberServesWhileItIsNeeded", nil},
		{planted.RestoreKeepsClusterID, "cluster/backup", "TestEachRestoreIsAClusterOfItsOwn", nil},
		{planted.RestoreKeepsEpoch, "fsm", "TestRestoredPartitionsForward", nil},
		{planted.RestoreNeedsBareVolume, "cluster/datadir", "TestNewFolderMayBeTheRootOfAVolume", nil},
		{planted.ReuseLockEpoch, "fsm", "TestQueueScenarios", nil},
		{planted.RollbackKeepsSettled, "amqp", "TestRollbackForgetsWhatTheClientSettled", nil},
		{planted.SecondTokenSender, "amqp", "TestSecondTokenSenderIsRefused", nil},
		{planted.SessionLossIsSilent, "amqp", "TestLinkOfALostSessionIsDetached", nil},
		{planted.SettleWithoutByteBound, "fsm", "TestSettlingIsLimitedByBytes", nil},
		{planted.SkipBodyChecksum, "partition/bodystore", "TestDamagedSegmentIsRefused", nil},
		{planted.SkipBodySync, "partition", "TestPowerLossKeepsWhatWasConfirmed", nil},
		{planted.SkipLogSync, "partition", "TestPowerLossKeepsWhatWasConfirmed", nil},
		{planted.SkipSecondLook, "fsm", "TestShardsThatWereUsedAreNotDeleted", nil},
		{planted.SplitTransaction, "fsm", "TestTransactionsAreAtomic", nil},
		{planted.SubmitAboveLevel, "partition", "TestCommandsWaitForTheirLevel", nil},
		{planted.SwapSnapshotPages, "partition", "TestCompactionKeepsLiveBodies", nil},
		{planted.SwitchBeforeCopy, "partition/raftlog", "TestConversionSurvivesALossOfPowerAtEveryStep", nil},
		{planted.SyncedTooFar, "partition/journal", "TestJournalSurvivesALossOfPowerAtEverySector", nil},
		{planted.TemporaryCountEndsEarly, "amqp", "TestTemporaryQueuesAreCountedWhileTheyAreCreated", nil},
		{planted.TrustUnsyncedTail, "partition/journal", "TestWhatIsReadAfterAFailedSyncIsDurable", nil},
		{planted.WallFollowsLeader, "partition", "TestLeaderWithAWrongClockEndsNothing", nil},
	}
}
