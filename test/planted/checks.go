package main

import (
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm/planted"
	"github.com/peeklock/peeklock/test/planted/faults"
)

// all returns the faults that are patches and those that the build tag "planted" compiles in.
func all() []faults.Fault {
	list := faults.All()
	for _, c := range checks() {
		list = append(list, faults.Fault{Name: string(c.fault), Package: c.pkg, Test: c.test, Env: c.env})
	}
	slices.SortFunc(list, func(a, b faults.Fault) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// check is the test that must fail while a fault is active.
type check struct {
	fault planted.Fault
	pkg   string   // of the test, relative to the module
	test  string   // name of the test, with subtests if needed
	env   []string // of the test process, besides PEEKLOCK_PLANTED
}

// checks lists the checks of the faults that the build tag compiles in.
func checks() []check {
	return []check{
		{planted.AcceptLateSettlement, "fsm", "TestQueueScenarios", nil},
		{planted.AcknowledgeBeforeQuorum, "partition", "TestCutOffLeaderConfirmsNothing", nil},
		{planted.AnswerUnstored, "partition/raftlog", "TestFormerLeaderAnswersWithWhatIsOnDisk", nil},
		{planted.ApplyInMapOrder, "partition", "TestNothingIsLostOrDuplicated", nil},
		{planted.ApplyReadsClock, "partition", "TestVerifyComparesTheWholeState", nil},
		{planted.ApplyUnstored, "partition", "TestLeaderAppliesWhatIsOnItsDisk", nil},
		{planted.BootstrapEmptyVoter, "test/sim", "TestSimulation", []string{"PEEKLOCK_SIM_SEED=1", "PEEKLOCK_SIM_FAULTS=lose disk"}},
		{planted.BrowsingRemoves, "amqp", "TestBrowsingRemovesNothing", nil},
		{planted.BrowsingSkipsShards, "amqp", "TestBrowserShowsNewMessagesOfEveryShard", nil},
		{planted.ContinueAfterFailedSync, "partition", "TestAFailedFolderSyncStopsTheReplica", nil},
		{planted.CountAttemptTwice, "fsm", "TestQueueScenarios", nil},
		{planted.DeliverExpiredMessage, "fsm", "TestQueueScenarios", nil},
		{planted.EmptyCatalogAnswers, "cluster/router", "TestStartingClusterIsBusy", nil},
		{planted.EndSessionWithoutByteBound, "fsm", "TestEndOfSessionIsLimitedByBytes", nil},
		{planted.ExpireWithoutByteBound, "fsm", "TestExpiryIsLimitedByBytes", nil},
		{planted.FetchAtUnconfirmedTime, "partition", "TestNothingIsTakenBeforeTheTimeIsConfirmed", nil},
		{planted.FetchReadyTakesLocked, "fsm", "TestNoMessageIsLostOrLockedTwice", nil},
		{planted.ForgetAnswers, "fsm", "TestReplicasAgreeAfterRestore", nil},
		{planted.ForgetArrival, "fsm", "TestForwardingIsExactlyOnce", nil},
		{planted.ForgetDuplicateIDs, "fsm", "TestReplicasAgreeAfterRestore", nil},
		{planted.ForgetFormerEpochs, "fsm", "TestBatchIsAcceptedOnceInItsEpoch", nil},
		{planted.ForwardWithoutByteBound, "fsm", "TestSettingAsideIsLimitedByBytes", nil},
		{planted.GiveUpUnknown, "cluster/router", "TestPartitionClientRetriesWithTheSameBytes", nil},
		{planted.GrantAtUnconfirmedTime, "partition", "TestNoMessageIsDeliveredBeforeItsTimeIsConfirmed", nil},
		{planted.GrantHeldSession, "fsm", "TestSessionsAgree", nil},
		{planted.IgnoreReservedNumber, "fsm", "TestTransactionSchedulesUnderReservedNumbers", nil},
		{planted.InstallWaitsInRaft, "partition", "TestAnOlderSnapshotNeverReplacesAnInstalledOne", nil},
		{planted.KeepContradictingLog, "partition/raftlog", "TestLogThatContradictsTheSnapshotIsDropped", nil},
		{planted.KeepPendingCopy, "partition/raftlog", "TestCrashAtEveryStepOfTheCopyChangesNoValue", nil},
		{planted.LoseOutboxOnHandover, "fsm", "TestForwardingIsExactlyOnce", nil},
		{planted.MistakeBatch, "fsm", "TestRestoredPartitionsForward", nil},
		{planted.OneTime, "partition", "TestOutageOfAllMembersKeepsQueuesAndLocks", nil},
		{planted.OverwritePlacement, "fsm", "TestPlacementIsReplacedAsItWasSeen", nil},
		{planted.PrestopGivesUp, "cmd/peeklock", "TestPrestopWaitsWhileTheMemberIsNeeded", nil},
		{planted.PublishOlderSnapshot, "partition", "TestAnOlderSnapshotNeverReplacesAnInstalledOne", nil},
		{planted.PulseWithoutByteBound, "fsm", "TestPulseIsLimitedByBytes", nil},
		{planted.PurgeHeldSessions, "fsm", "TestPurgeSparesHeldSessions", nil},
		{planted.RaftStreamAnyReplica, "partition", "TestReplicaDoesNotAnswerForItsPredecessor", nil},
		{planted.ReadWithoutQuorum, "partition", "TestCutOffLeaderConfirmsNothing", nil},
		{planted.RedriveWithoutByteBound, "fsm", "TestRedriveIsLimitedByBytes", nil},
		{planted.RefuseAtCommitOnly, "amqp", "TestLostLockIsRefusedInItsTransaction", nil},
		{planted.RefuseAttachAtOnce, "amqp", "TestAttachWaitsWhileTheBrokerIsBusy", nil},
		{planted.RemovedVoterStops, "cluster", "TestRemovedMemberServesWhileItIsNeeded", nil},
		{planted.RestoreKeepsEpoch, "fsm", "TestRestoredPartitionsForward", nil},
		{planted.ReuseLockEpoch, "fsm", "TestQueueScenarios", nil},
		{planted.RollbackKeepsSettled, "amqp", "TestRollbackForgetsWhatTheClientSettled", nil},
		{planted.SecondTokenSender, "amqp", "TestSecondTokenSenderIsRefused", nil},
		{planted.SelectingNeverLooksBack, "amqp", "TestConsumerWithSelectorFindsWhatComesBack", nil},
		{planted.SessionLossIsSilent, "amqp", "TestLinkOfALostSessionIsDetached", nil},
		{planted.SettleWithoutByteBound, "fsm", "TestSettlingIsLimitedByBytes", nil},
		{planted.SkipSecondLook, "fsm", "TestShardsThatWereUsedAreNotDeleted", nil},
		{planted.SplitTransaction, "fsm", "TestTransactionsAreAtomic", nil},
		{planted.SubmitAboveLevel, "test/upgrade", "TestNextRelease", nil},
		{planted.SubscriptionOfAnyClient, "amqp", "TestSubscriptionsOfClientsAreApart", nil},
		{planted.SwapSnapshotPages, "partition", "TestCompactionKeepsLiveBodies", nil},
		{planted.TakeOverKeepsFormerHolder, "fsm", "TestSessionsAgree", nil},
		{planted.TemporaryCountEndsEarly, "amqp", "TestTemporaryQueuesAreCountedWhileTheyAreCreated", nil},
		{planted.TrustRaftDB, "partition/raftlog", "TestDamageWhileTheLogIsOpenHasNoEffect", nil},
		{planted.WallFollowsLeader, "partition", "TestLeaderWithAWrongClockEndsNothing", nil},
	}
}
