package fsm

// Kind is the number of a command in the log format: append only, zero is never valid.
type Kind uint8

// The kinds of the message partitions begin at 1, those of the catalog at 32.
const (
	KindPulse           Kind = 1
	KindPutEntity       Kind = 2
	KindDropEntity      Kind = 3
	KindSendMessages    Kind = 4
	KindLockMessages    Kind = 5
	KindSettleMessages  Kind = 6
	KindRenewLocks      Kind = 7
	KindFetchDeferred   Kind = 8
	KindCloseReceiver   Kind = 9
	KindCancelScheduled Kind = 10
	KindPurgeMessages   Kind = 11
	KindRedriveMessages Kind = 12
	KindTouch           Kind = 13
	KindPutRule         Kind = 14
	KindDropRule        Kind = 15

	KindForwardMessages  Kind = 16
	KindTransferMessages Kind = 17

	KindAcceptSession   Kind = 18
	KindRenewSession    Kind = 19
	KindReleaseSession  Kind = 20
	KindSetSessionState Kind = 21

	KindTransact Kind = 22

	KindBeginEpoch    Kind = 23
	KindTransferBatch Kind = 24 // a TransferMessages with sequence numbers

	KindReserveNumbers    Kind = 25
	KindTransactExtended  Kind = 26 // a Transact with reserved numbers, cancellations or states of sessions
	KindTransferScheduled Kind = 27 // a TransferMessages with sequence numbers and with reserved ones

	KindFenceIdle  Kind = 28
	KindFetchReady Kind = 29

	KindAcceptNonExclusive Kind = 30 // an AcceptSession with a token

	KindFoundCluster    Kind = 32
	KindPartitionFormed Kind = 33
	KindCreateEntity    Kind = 34
	KindUpdateEntity    Kind = 35
	KindDeleteEntity    Kind = 36
	KindForgetEntity    Kind = 37

	KindCreateNamespace Kind = 38
	KindUpdateNamespace Kind = 39
	KindDeleteNamespace Kind = 40
	KindSetAccess       Kind = 41

	KindSetMember        Kind = 42
	KindPlacePartition   Kind = 43
	KindPartitionPlaced  Kind = 44
	KindAddPartitions    Kind = 45
	KindRaiseLevel       Kind = 46
	KindRenameCluster    Kind = 47
	KindReplacePartition Kind = 48 // a PlacePartition that names the placement it was derived from
	KindReplaceReplica   Kind = 49
)

// IsFor reports whether the state machine of a partition applies commands of this kind. A command of
// another kind must not enter its log: Apply would stop the replicas.
func (k Kind) IsFor(id PartitionID) bool {
	switch {
	case k == KindPulse, k == KindCloseReceiver, k == KindRaiseLevel:
		return true
	case id == CatalogPartition:
		return k >= KindFoundCluster && k <= KindReplaceReplica
	}
	return k >= KindPulse && k <= KindAcceptNonExclusive
}
