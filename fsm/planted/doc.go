// Package planted holds the names of faults that can be built into Peeklock on purpose, to show that the checks
// find them. Packages of the product ask [Active] at the place of the fault. Without the build tag "planted",
// Active is a constant false to the compiler, and nothing of a fault is in the binary. With the tag, the
// environment variable PEEKLOCK_PLANTED names the faults that are active in the process, separated by commas: mostly one, and
// several where each of them is mended by more than one thing.
//
// A fault is planted where a check should notice it; test/planted/checks.go lists the test that finds each.
package planted

// Fault is the name of a planted fault, in lower case with dashes.
type Fault string

// The planted faults, in alphabetical order.
const (
	// AcceptLateSettlement settles a message whose lock has ended and was granted again.
	AcceptLateSettlement Fault = "accept-late-settlement"
	// AcknowledgeBeforeQuorum confirms sends when the leader proposes them, before a quorum has stored them.
	AcknowledgeBeforeQuorum Fault = "acknowledge-before-quorum"
	// AnswerUnstored lets a replica that led a moment ago confirm entries that are not on its disk yet.
	AnswerUnstored Fault = "answer-unstored"
	// ApplyInMapOrder applies the commands of an entry in the order of a map.
	ApplyInMapOrder Fault = "apply-in-map-order"
	// ApplyReadsClock applies an entry with the clock of the replica's own member.
	ApplyReadsClock Fault = "apply-reads-clock"
	// ApplyUnstored lets a leader apply entries that are not on its own disk yet.
	ApplyUnstored Fault = "apply-unstored"
	// BootstrapEmptyVoter gives a member without data the id that a member of its name had: with an empty disk it
	// comes back as a voter that has forgotten everything.
	BootstrapEmptyVoter Fault = "bootstrap-empty-voter"
	// BrowsingRemoves takes a receiver that browses for one that receives and deletes.
	BrowsingRemoves Fault = "browsing-removes"
	// BrowsingSkipsShards lets a browser of a partitioned entity go on behind the last number that it has shown.
	BrowsingSkipsShards Fault = "browsing-skips-shards"
	// CommitBehindSent leaves the commit index of a request for entries behind the last entry of the request.
	CommitBehindSent Fault = "commit-behind-sent"
	// CommitUnstored lets a leader tell followers that entries are committed that are not on its own disk yet.
	CommitUnstored Fault = "commit-unstored"
	// ContinueAfterFailedSync lets a replica run on when the folder of a new snapshot could not be synced.
	ContinueAfterFailedSync Fault = "continue-after-failed-sync"
	// CountAttemptTwice counts a failed delivery twice.
	CountAttemptTwice Fault = "count-attempt-twice"
	// CountPiecesLate counts the pieces of a request that a follower has taken when it answers again.
	CountPiecesLate Fault = "count-pieces-late"
	// CountUnsyncedNames lets a caller take the name of a file for durable while its folder is still being synced.
	CountUnsyncedNames Fault = "count-unsynced-names"
	// DeliverExpiredMessage delivers messages whose time to live has passed.
	DeliverExpiredMessage Fault = "deliver-expired-message"
	// DrainedStopsRebalance makes a drained member prevent automatic rebalances for as long as it is drained.
	DrainedStopsRebalance Fault = "drained-stops-rebalance"
	// EmptyCatalogAnswers answers from the catalog of a cluster that is not bootstrapped yet.
	EmptyCatalogAnswers Fault = "empty-catalog-answers"
	// EndSessionWithoutByteBound lets the end of a session rewrite any number of bytes.
	EndSessionWithoutByteBound Fault = "end-session-without-byte-bound"
	// ExpireWithoutByteBound lets messages that expire outside of pulses rewrite any number of bytes.
	ExpireWithoutByteBound Fault = "expire-without-byte-bound"
	// FetchAtUnconfirmedTime receives by number, and forwards, after an outage before a quorum has confirmed the time.
	FetchAtUnconfirmedTime Fault = "fetch-at-unconfirmed-time"
	// FetchReadyTakesLocked locks messages by number that another receiver holds.
	FetchReadyTakesLocked Fault = "fetch-ready-takes-locked"
	// FollowerCountsUnsent sends the first piece of a large AppendEntries alone and reports success for all of it.
	FollowerCountsUnsent Fault = "follower-counts-unsent"
	// ForgetAnswers forgets remembered answers when an image is loaded, so that a repeated command is performed twice.
	ForgetAnswers Fault = "forget-answers"
	// ForgetArrival lets a destination forget the batch that it accepted last from a source.
	ForgetArrival Fault = "forget-arrival"
	// ForgetDuplicateIDs forgets the ids of duplicate detection when an image is loaded.
	ForgetDuplicateIDs Fault = "forget-duplicate-ids"
	// ForgetFormerEpochs lets a destination know late batches of one former epoch of a source only.
	ForgetFormerEpochs Fault = "forget-former-epochs"
	// ForwardWithoutByteBound lets one entry write any number of bytes of messages that cannot be forwarded.
	ForwardWithoutByteBound Fault = "forward-without-byte-bound"
	// FreeSegmentEarly frees the oldest segment of a journal although groups need entries in it.
	FreeSegmentEarly Fault = "free-segment-early"
	// GiveUpUnknown reports a request with an unknown outcome as failed instead of sending it again.
	GiveUpUnknown Fault = "give-up-unknown"
	// GrantAtUnconfirmedTime grants locks after an outage before a quorum has confirmed the time.
	GrantAtUnconfirmedTime Fault = "grant-at-unconfirmed-time"
	// GrantHeldSession grants the lock of a session that is held.
	GrantHeldSession Fault = "grant-held-session"
	// IgnoreLostPart opens the groups of a journal of which a part cannot be read.
	IgnoreLostPart Fault = "ignore-lost-part"
	// IgnoreReservedNumber schedules the messages of a transaction under the next numbers instead of the reserved ones.
	IgnoreReservedNumber Fault = "ignore-reserved-number"
	// InheritDeadline gives the answer to a request to a peer new time when another request is sent behind it.
	InheritDeadline Fault = "inherit-deadline"
	// InstallWaitsInRaft lets raft wait on its main goroutine for the end of a snapshot of the replica itself.
	InstallWaitsInRaft Fault = "install-waits-in-raft"
	// InstallWithoutDeadline lets raft read a snapshot from the stream on its main goroutine.
	InstallWithoutDeadline Fault = "install-without-deadline"
	// KeepContradictingLog keeps log entries that contradict the snapshot at their index.
	KeepContradictingLog Fault = "keep-contradicting-log"
	// KeepPendingCopy keeps the copy from which the file of terms and votes was written again while the file changes.
	KeepPendingCopy Fault = "keep-pending-copy"
	// LoseOutboxOnHandover lets a new leader overlook the batches that are in flight.
	LoseOutboxOnHandover Fault = "lose-outbox-on-handover"
	// MistakeBatch lets a destination take another batch under a known serial for the one that it knows.
	MistakeBatch Fault = "mistake-batch"
	// OneTime lets serving time follow wall time: an outage ends locks and deletes idle entities.
	OneTime Fault = "one-time"
	// OverwritePlacement lets a placement replace one that its author has not seen.
	OverwritePlacement Fault = "overwrite-placement"
	// PaceLargePayload counts the payload of a large WebSocket message as bytes that carry nothing until all of it was read.
	PaceLargePayload Fault = "pace-large-payload"
	// PledgeTwice promises two members to bootstrap different clusters with them.
	PledgeTwice Fault = "pledge-twice"
	// PrestopGivesUp makes the preStop hook end, and so the process, when the removal of its member is refused.
	PrestopGivesUp Fault = "prestop-gives-up"
	// PublishOlderSnapshot lets a snapshot of a replica replace a newer one that the leader has sent.
	PublishOlderSnapshot Fault = "publish-older-snapshot"
	// PulseWithoutByteBound lets one pulse write any number of bytes.
	PulseWithoutByteBound Fault = "pulse-without-byte-bound"
	// PurgeHeldSessions purges the messages of sessions that are held.
	PurgeHeldSessions Fault = "purge-held-sessions"
	// RaftStreamAnyReplica lets a replica serve raft streams that name another one.
	RaftStreamAnyReplica Fault = "raft-stream-any-replica"
	// ReadWithoutQuorum reads at a leader that a quorum no longer confirms.
	ReadWithoutQuorum Fault = "read-without-quorum"
	// RedriveWithoutByteBound lets the redrives of one entry rewrite any number of bytes.
	RedriveWithoutByteBound Fault = "redrive-without-byte-bound"
	// RefuseAtCommitOnly accepts every settlement and send in a transaction, and lets the commit refuse them.
	RefuseAtCommitOnly Fault = "refuse-at-commit-only"
	// RefuseAttachAtOnce refuses an attach when the broker is busy, instead of asking it again.
	RefuseAttachAtOnce Fault = "refuse-attach-at-once"
	// RefusedBatchStays lets a source send a batch forever that its destination refuses as outdated.
	RefusedBatchStays Fault = "refused-batch-stays"
	// ReleaseByOldAnswer takes back a pledge because of an answer that is older than the pledge.
	ReleaseByOldAnswer Fault = "release-by-old-answer"
	// RemovalPlansOnce makes the removal of a member plan once, and fail when another removal interferes.
	RemovalPlansOnce Fault = "removal-plans-once"
	// RemovedStays lets serve end in the folder of a removed member although it may start over there.
	RemovedStays Fault = "removed-stays"
	// RemovedVoterStops makes a removed member stop when its own catalog shows the removal, although the catalog's
	// group may still need its vote.
	RemovedVoterStops Fault = "removed-voter-stops"
	// RequestWithoutByteBound lets one request for entries carry any number of bytes.
	RequestWithoutByteBound Fault = "request-without-byte-bound"
	// RestoreKeepsClusterID lets a restored cluster have the id of the cluster that was backed up.
	RestoreKeepsClusterID Fault = "restore-keeps-cluster-id"
	// RestoreKeepsEpoch lets a restored partition forward in the epoch in which it was copied.
	RestoreKeepsEpoch Fault = "restore-keeps-epoch"
	// RestoreNeedsBareVolume refuses to restore into a volume with the folder lost+found.
	RestoreNeedsBareVolume Fault = "restore-needs-bare-volume"
	// ReuseLockEpoch grants a lock under the epoch of the one before.
	ReuseLockEpoch Fault = "reuse-lock-epoch"
	// RollbackKeepsSettled keeps deliveries unsettled that the client settled in a transaction that is rolled back.
	RollbackKeepsSettled Fault = "rollback-keeps-settled"
	// SecondTokenSender accepts a second sender to $cbs on a connection.
	SecondTokenSender Fault = "second-token-sender"
	// SelectingNeverLooksBack lets a consumer with a selector look at each message once.
	SelectingNeverLooksBack Fault = "selecting-never-looks-back"
	// SessionLossIsSilent lets a link without credit stay attached when its session lock has ended.
	SessionLossIsSilent Fault = "session-loss-is-silent"
	// SettleWithoutByteBound lets the settlements of one entry rewrite any number of bytes.
	SettleWithoutByteBound Fault = "settle-without-byte-bound"
	// SkipBodyChecksum delivers bodies whose checksum is wrong.
	SkipBodyChecksum Fault = "skip-body-checksum"
	// SkipBodySync lists segments in a snapshot that were not synced.
	SkipBodySync Fault = "skip-body-sync"
	// SkipLogSync makes a crash undo the newest transactions of a log, as if it had not synced them. It is
	// planted in the store of the simulation.
	SkipLogSync Fault = "skip-log-sync"
	// SkipSecondLook fences and deletes a partitioned entity although it was used since the first look.
	SkipSecondLook Fault = "skip-second-look"
	// SplitTransaction performs a transaction although one of its sends is refused.
	SplitTransaction Fault = "split-transaction"
	// SubmitAboveLevel proposes commands that need a higher format level than the state machine has.
	SubmitAboveLevel Fault = "submit-above-level"
	// SubscriptionOfAnyClient leaves the client id out of the name of the subscription of a client of JMS.
	SubscriptionOfAnyClient Fault = "subscription-of-any-client"
	// SwapSnapshotPages exchanges two pages of each snapshot after its checksum was computed.
	SwapSnapshotPages Fault = "swap-snapshot-pages"
	// SyncedTooFar lets the head of a batch in a journal claim that the batch itself was synced.
	SyncedTooFar Fault = "synced-too-far"
	// TakeOverKeepsFormerHolder lets the former holder of a session that was taken over go on under its lock.
	TakeOverKeepsFormerHolder Fault = "take-over-keeps-former-holder"
	// TemporaryCountEndsEarly no longer counts a temporary queue whose link ends while the queue is being created.
	TemporaryCountEndsEarly Fault = "temporary-count-ends-early"
	// TrustRaftDB uses the file of terms and votes as it is, and not its copy.
	TrustRaftDB Fault = "trust-raft-db"
	// TrustUnsyncedTail indexes the newest batch of a journal without making it durable.
	TrustUnsyncedTail Fault = "trust-unsynced-tail"
	// WallFollowsLeader lets the clock of a leader decide the wall time alone.
	WallFollowsLeader Fault = "wall-follows-leader"
)

// Faults lists every planted fault once, in alphabetical order.
var Faults = []Fault{ //nolint:gochecknoglobals // read only
	AcceptLateSettlement,
	AcknowledgeBeforeQuorum,
	AnswerUnstored,
	ApplyInMapOrder,
	ApplyReadsClock,
	ApplyUnstored,
	BootstrapEmptyVoter,
	BrowsingRemoves,
	BrowsingSkipsShards,
	CommitBehindSent,
	CommitUnstored,
	ContinueAfterFailedSync,
	CountAttemptTwice,
	CountPiecesLate,
	CountUnsyncedNames,
	DeliverExpiredMessage,
	DrainedStopsRebalance,
	EmptyCatalogAnswers,
	EndSessionWithoutByteBound,
	ExpireWithoutByteBound,
	FetchAtUnconfirmedTime,
	FetchReadyTakesLocked,
	FollowerCountsUnsent,
	ForgetAnswers,
	ForgetArrival,
	ForgetDuplicateIDs,
	ForgetFormerEpochs,
	ForwardWithoutByteBound,
	FreeSegmentEarly,
	GiveUpUnknown,
	GrantAtUnconfirmedTime,
	GrantHeldSession,
	IgnoreLostPart,
	IgnoreReservedNumber,
	InheritDeadline,
	InstallWaitsInRaft,
	InstallWithoutDeadline,
	KeepContradictingLog,
	KeepPendingCopy,
	LoseOutboxOnHandover,
	MistakeBatch,
	OneTime,
	OverwritePlacement,
	PaceLargePayload,
	PledgeTwice,
	PrestopGivesUp,
	PublishOlderSnapshot,
	PulseWithoutByteBound,
	PurgeHeldSessions,
	RaftStreamAnyReplica,
	ReadWithoutQuorum,
	RedriveWithoutByteBound,
	RefuseAtCommitOnly,
	RefuseAttachAtOnce,
	RefusedBatchStays,
	ReleaseByOldAnswer,
	RemovalPlansOnce,
	RemovedStays,
	RemovedVoterStops,
	RequestWithoutByteBound,
	RestoreKeepsClusterID,
	RestoreKeepsEpoch,
	RestoreNeedsBareVolume,
	ReuseLockEpoch,
	RollbackKeepsSettled,
	SecondTokenSender,
	SelectingNeverLooksBack,
	SessionLossIsSilent,
	SettleWithoutByteBound,
	SkipBodyChecksum,
	SkipBodySync,
	SkipLogSync,
	SkipSecondLook,
	SplitTransaction,
	SubmitAboveLevel,
	SubscriptionOfAnyClient,
	SwapSnapshotPages,
	SyncedTooFar,
	TakeOverKeepsFormerHolder,
	TemporaryCountEndsEarly,
	TrustRaftDB,
	TrustUnsyncedTail,
	WallFollowsLeader,
}
