package fsm

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
)

// Kind is the number of a command in the log format: append only, zero is never valid. The table of kinds describes
// each.
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

// kindRow is what is known about the commands of a kind. The rows are the only list of kinds; what asks about a kind
// looks it up here.
type kindRow struct {
	name     string // for operators
	machines byte   // the state machines that apply it: machineQueues, machineCatalog
	level    uint32 // the format level from which on it may be written
	front    front
	grows    bool // it stores data, so it is refused while disk space is low. The others free some, or others depend on them
	brings   bool // it brings messages
	takes    Taking
	// decode reads the payload. The codec is a value because it would escape to the heap as a pointer.
	decode func(x fields.Codec) (Command, fields.Codec)
	// verify checks a payload without building the command; nil: by decode and check.
	verify func(x fields.Codec) error
}

// front says with which fields a payload begins.
type front uint8

const (
	frontOther    front = iota
	frontEntity         // the entity concerned
	frontSend           // the entity and the number of messages
	frontTransfer       // the entity, source, epoch and serial, and the number of messages
)

// Taking says which messages a command takes without waiting for them.
type Taking uint8

// What commands take.
const (
	TakesNothing  Taking = iota // or it waits at the leader
	TakesByNumber               // messages that have no due time: deferred ones, or those to forward
	TakesReady                  // ready messages
)

var kinds = [...]kindRow{
	KindPulse: {
		name: "pulse", machines: machineQueues | machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return Pulse{}, x },
	},
	KindPutEntity: {
		name: "put entity", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PutEntity).fields) },
	},
	KindDropEntity: {
		name: "drop entity", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DropEntity).fields) },
	},
	KindSendMessages: {
		name: "send", machines: machineQueues, level: 1, front: frontSend, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SendMessages).fields) },
		verify: func(x fields.Codec) error { verifySend(&x); return x.End() },
	},
	KindLockMessages: {
		name: "lock", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*LockMessages).fields) },
	},
	KindSettleMessages: {
		name: "settle", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SettleMessages).fields) },
		verify: func(x fields.Codec) error { verifySettle(&x); return x.End() },
	},
	KindRenewLocks: {
		name: "renew locks", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RenewLocks).fields) },
	},
	KindFetchDeferred: {
		name: "fetch deferred", machines: machineQueues, level: 1, front: frontEntity, takes: TakesByNumber,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FetchDeferred).fields) },
	},
	KindCloseReceiver: {
		name: "close receiver", machines: machineQueues | machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CloseReceiver).fields) },
	},
	KindCancelScheduled: {
		name: "cancel scheduled", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CancelScheduled).fields) },
	},
	KindPurgeMessages: {
		name: "purge", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PurgeMessages).fields) },
	},
	KindRedriveMessages: {
		name: "redrive", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RedriveMessages).fields) },
	},
	KindTouch: {
		name: "touch", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*Touch).fields) },
	},
	KindPutRule: {
		name: "put rule", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PutRule).fields) },
	},
	KindDropRule: {
		name: "drop rule", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DropRule).fields) },
	},
	KindForwardMessages: {
		name: "forward", machines: machineQueues, level: 1, front: frontEntity, takes: TakesByNumber,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ForwardMessages).fields) },
	},
	KindTransferMessages: {
		name: "transfer", machines: machineQueues, level: 1, front: frontTransfer, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*TransferMessages).fields) },
		verify: func(x fields.Codec) error { verifyTransfer(&x, KindTransferMessages); return x.End() },
	},
	KindAcceptSession: {
		name: "accept session", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*AcceptSession).fields) },
	},
	KindRenewSession: {
		name: "renew session", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RenewSession).fields) },
	},
	KindReleaseSession: {
		name: "release session", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ReleaseSession).fields) },
	},
	KindSetSessionState: {
		name: "set session state", machines: machineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SetSessionState).fields) },
	},
	KindTransact: {
		name: "transaction", machines: machineQueues, level: 1, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*Transact).fields) },
	},
	KindBeginEpoch: {
		name: "begin epoch", machines: machineQueues, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*BeginEpoch).fields) },
	},
	KindTransferBatch: {
		name: "transfer batch", machines: machineQueues, level: 1, front: frontTransfer, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, batchFields) },
		verify: func(x fields.Codec) error { verifyTransfer(&x, KindTransferBatch); return x.End() },
	},
	KindReserveNumbers: {
		name: "reserve numbers", machines: machineQueues, level: LevelReservedNumbers, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ReserveNumbers).fields) },
	},
	KindTransactExtended: {
		name: "extended transaction", machines: machineQueues, level: LevelReservedNumbers, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, extendedFields) },
	},
	KindTransferScheduled: {
		name: "transfer scheduled", machines: machineQueues, level: LevelReservedNumbers, front: frontTransfer, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, scheduledFields) },
		verify: func(x fields.Codec) error { verifyTransfer(&x, KindTransferScheduled); return x.End() },
	},
	KindFenceIdle: {
		name: "fence idle", machines: machineQueues, level: LevelFences, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FenceIdle).fields) },
	},
	KindFetchReady: {
		name: "fetch ready", machines: machineQueues, level: LevelFetchReady, front: frontEntity, takes: TakesReady,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FetchReady).fields) },
	},
	KindAcceptNonExclusive: {
		name: "accept non-exclusive session", machines: machineQueues, level: LevelNonExclusiveSessions, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, nonExclusiveFields) },
	},
	KindFoundCluster: {
		name: "found cluster", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FoundCluster).fields) },
	},
	KindPartitionFormed: {
		name: "partition formed", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PartitionFormed).fields) },
	},
	KindCreateEntity: {
		name: "create entity", machines: machineCatalog, level: 1, grows: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CreateEntity).fields) },
	},
	KindUpdateEntity: {
		name: "update entity", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*UpdateEntity).fields) },
	},
	KindDeleteEntity: {
		name: "delete entity", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DeleteEntity).fields) },
	},
	KindForgetEntity: {
		name: "forget entity", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ForgetEntity).fields) },
	},
	KindCreateNamespace: {
		name: "create namespace", machines: machineCatalog, level: 1, grows: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CreateNamespace).fields) },
	},
	KindUpdateNamespace: {
		name: "update namespace", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*UpdateNamespace).fields) },
	},
	KindDeleteNamespace: {
		name: "delete namespace", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DeleteNamespace).fields) },
	},
	KindSetAccess: {
		name: "set access", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SetAccess).fields) },
	},
	KindSetMember: {
		name: "set member", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SetMember).fields) },
	},
	KindPlacePartition: {
		name: "place partition", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PlacePartition).fields) },
	},
	KindPartitionPlaced: {
		name: "partition placed", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PartitionPlaced).fields) },
	},
	KindAddPartitions: {
		name: "add partitions", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*AddPartitions).fields) },
	},
	KindRaiseLevel: {
		name: "raise level", machines: machineQueues | machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RaiseLevel).fields) },
	},
	KindRenameCluster: {
		name: "rename cluster", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RenameCluster).fields) },
	},
	KindReplacePartition: {
		name: "place partition again", machines: machineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, replacementFields) },
	},
	KindReplaceReplica: {
		name: "replace replica", machines: machineCatalog, level: LevelReplaceReplica,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ReplaceReplica).fields) },
	},
}

// row returns the row of a kind, an empty one if there is no such kind.
func (k Kind) row() *kindRow {
	if int(k) < len(kinds) {
		return &kinds[k]
	}
	return &kinds[0]
}

// IsFor reports whether the state machine of a partition applies commands of this kind. A command of
// another kind must not enter its log: Apply would stop the replicas.
func (k Kind) IsFor(id PartitionID) bool {
	if id == CatalogPartition {
		return k.row().machines&machineCatalog != 0
	}
	return k.row().machines&machineQueues != 0
}

// String returns the name of the kind for operators.
func (k Kind) String() string {
	if name := k.row().name; name != "" {
		return name
	}
	return fmt.Sprintf("command %d", uint8(k))
}

// Grows reports whether commands of this kind store data, so that they are refused while disk space is low. A
// transaction may settle messages, but its sends come with it.
func (k Kind) Grows() bool { return k.row().grows }

// Brings reports whether commands of this kind bring messages.
func (k Kind) Brings() bool { return k.row().brings }

// Takes returns which messages commands of this kind take without waiting for them.
func (k Kind) Takes() Taking { return k.row().takes }

// decodeAs decodes the payload of a command of type C. It is inlined, so that neither the codec nor the
// command escapes.
func decodeAs[C Command](x fields.Codec, list func(*C, *fields.Codec)) (Command, fields.Codec) {
	var c C
	list(&c, &x)
	return c, x
}
