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
		{planted.CountAttemptTwice, "fsm", "TestQueueScenarios", nil},
		{planted.DeliverExpiredMessage, "fsm", "TestQueueScenarios", nil},
		{planted.EndSessionWithoutByteBound, "fsm", "TestEndOfSessionIsLimitedByBytes", nil},
		{planted.ExpireWithoutByteBound, "fsm", "TestExpiryIsLimitedByBytes", nil},
		{planted.FetchReadyTakesLocked, "fsm", "TestNoMessageIsLostOrLockedTwice", nil},
		{planted.ForgetAnswers, "fsm", "TestReplicasAgreeAfterRestore", nil},
		{planted.ForgetArrival, "fsm", "TestForwardingIsExactlyOnce", nil},
		{planted.ForgetDuplicateIDs, "fsm", "TestReplicasAgreeAfterRestore", nil},
		{planted.ForgetFormerEpochs, "fsm", "TestBatchIsAcceptedOnceInItsEpoch", nil},
		{planted.ForwardWithoutByteBound, "fsm", "TestSettingAsideIsLimitedByBytes", nil},
		{planted.GrantHeldSession, "fsm", "TestSessionsAgree", nil},
		{planted.IgnoreReservedNumber, "fsm", "TestTransactionSchedulesUnderReservedNumbers", nil},
		{planted.LoseOutboxOnHandover, "fsm", "TestForwardingIsExactlyOnce", nil},
		{planted.MistakeBatch, "fsm", "TestRestoredPartitionsForward", nil},
		{planted.OneTime, "partition", "TestOutageOfAllMembersKeepsQueuesAndLocks", nil},
		{planted.OverwritePlacement, "fsm", "TestPlacementIsReplacedAsItWasSeen", nil},
		{planted.PulseWithoutByteBound, "fsm", "TestPulseIsLimitedByBytes", nil},
		{planted.PurgeHeldSessions, "fsm", "TestPurgeSparesHeldSessions", nil},
		{planted.RedriveWithoutByteBound, "fsm", "TestRedriveIsLimitedByBytes", nil},
		{planted.RestoreKeepsEpoch, "fsm", "TestRestoredPartitionsForward", nil},
		{planted.ReuseLockEpoch, "fsm", "TestQueueScenarios", nil},
		{planted.SettleWithoutByteBound, "fsm", "TestSettlingIsLimitedByBytes", nil},
		{planted.SkipSecondLook, "fsm", "TestShardsThatWereUsedAreNotDeleted", nil},
		{planted.SplitTransaction, "fsm", "TestTransactionsAreAtomic", nil},
		{planted.TakeOverKeepsFormerHolder, "fsm", "TestSessionsAgree", nil},
	}
}
