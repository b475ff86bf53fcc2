package fsm

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
)

// Kind is the number of a command in the log format: zero is never valid, and numbers are only added. The table of kinds describes
// each.
type Kind uint8

// The kinds of the message partitions begin at 1, those of the catalog at 64.
const (
	KindPulse           Kind = 1
	KindPutEntity       Kind = 2
	KindDropEntity      Kind = 3
	KindTouch           Kind = 4
	KindPutRule         Kind = 5
	KindDropRule        Kind = 6
	KindSendMessages    Kind = 7
	KindLockMessages    Kind = 8
	KindFetchDeferred   Kind = 9
	KindFetchReady      Kind = 10
	KindSettleMessages  Kind = 11
	KindRenewLocks      Kind = 12
	KindCloseReceiver   Kind = 13
	KindReserveNumbers  Kind = 14
	KindCancelScheduled Kind = 15
	KindPurgeMessages   Kind = 16
	KindRedriveMessages Kind = 17

	KindAcceptSession   Kind = 18
	KindRenewSession    Kind = 19
	KindReleaseSession  Kind = 20
	KindSetSessionState Kind = 21

	KindTransact Kind = 22

	KindForwardMessages  Kind = 23
	KindTransferMessages Kind = 24
	KindBeginEpoch       Kind = 25

	KindFenceIdle Kind = 26

	KindSettleUnlocked Kind = 27

	KindRaiseLevel Kind = 63 // also of the catalog

	KindFoundCluster    Kind = 64
	KindRenameCluster   Kind = 65
	KindCreateNamespace Kind = 66
	KindUpdateNamespace Kind = 67
	KindDeleteNamespace Kind = 68
	KindSetAccess       Kind = 69
	KindCreateEntity    Kind = 70
	KindUpdateEntity    Kind = 71
	KindDeleteEntity    Kind = 72
	KindForgetEntity    Kind = 73
	KindSetMember       Kind = 74
	KindAddPartitions   Kind = 75
	KindPartitionFormed Kind = 76
	KindPlacePartition  Kind = 77
	KindPartitionPlaced Kind = 78
	KindReplaceReplica  Kind = 79
	KindHoldLevel       Kind = 80
)

// kindRow is what is known about the commands of a kind. The rows are the only list of kinds; what asks about a kind
// looks it up here.
type kindRow struct {
	name     string // for operators
	machines byte   // the state machines that apply it: MachineQueues, MachineCatalog
	level    uint32 // the format level from which on it may be written
	front    front
	grows    growth
	brings   bool // it brings messages
	holds    bool // it renews, reserves or moves, and nothing that it leads to frees space
	takes    Taking
	// decode reads the payload. The codec is a value because it would escape to the heap as a pointer.
	decode func(x fields.Codec) (Command, fields.Codec)
	// verify checks a payload without building the command; nil: by decode and check.
	verify func(x fields.Codec) error
}

// growth says which commands of a kind store data, so that they are refused while disk space or memory is low.
type growth uint8

const (
	neverGrows  growth = iota // it frees data, or others depend on it
	alwaysGrows               // it stores data
	mayGrow                   // its method grows says so
)

// front says with which fields a payload begins.
type front uint8

const (
	frontOther    front = iota
	frontEntity         // the entity concerned
	frontSend           // the entity and the number of messages
	frontSettle         // the address, and the number of settlements
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
		name: "pulse", machines: MachineQueues | MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return Pulse{}, x },
	},
	KindPutEntity: {
		name: "put entity", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PutEntity).fields) },
	},
	KindDropEntity: {
		name: "drop entity", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DropEntity).fields) },
	},
	KindSendMessages: {
		name: "send", machines: MachineQueues, level: 1, front: frontSend, grows: alwaysGrows, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SendMessages).fields) },
		verify: func(x fields.Codec) error { verifySend(&x); return x.End() },
	},
	KindLockMessages: {
		name: "lock", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*LockMessages).Fields) },
	},
	KindSettleMessages: {
		name: "settle", machines: MachineQueues, level: 1, front: frontSettle, grows: mayGrow,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SettleMessages).Fields) },
		verify: func(x fields.Codec) error { verifySettle(&x); return x.End() },
	},
	KindRenewLocks: {
		name: "renew locks", machines: MachineQueues, level: 1, front: frontEntity, holds: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RenewLocks).Fields) },
	},
	KindFetchDeferred: {
		name: "fetch deferred", machines: MachineQueues, level: 1, front: frontEntity, takes: TakesByNumber,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FetchDeferred).Fields) },
	},
	KindCloseReceiver: {
		name: "close receiver", machines: MachineQueues | MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CloseReceiver).fields) },
	},
	KindCancelScheduled: {
		name: "cancel scheduled", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CancelScheduled).Fields) },
	},
	KindPurgeMessages: {
		name: "purge", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PurgeMessages).fields) },
	},
	KindRedriveMessages: {
		name: "redrive", machines: MachineQueues, level: 1, front: frontEntity, holds: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RedriveMessages).fields) },
	},
	KindSettleUnlocked: {
		name: "settle unlocked", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SettleUnlocked).fields) },
	},
	KindTouch: {
		name: "touch", machines: MachineQueues, level: 1, front: frontEntity, holds: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*Touch).fields) },
	},
	KindPutRule: {
		name: "put rule", machines: MachineQueues, level: 1, front: frontEntity, grows: alwaysGrows,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PutRule).fields) },
	},
	KindDropRule: {
		name: "drop rule", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DropRule).fields) },
	},
	KindForwardMessages: {
		name: "forward", machines: MachineQueues, level: 1, front: frontEntity, takes: TakesByNumber, holds: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ForwardMessages).fields) },
	},
	KindTransferMessages: {
		name: "transfer", machines: MachineQueues, level: 1, front: frontTransfer, grows: alwaysGrows, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*TransferMessages).fields) },
		verify: func(x fields.Codec) error { verifyTransfer(&x); return x.End() },
	},
	KindAcceptSession: {
		name: "accept session", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*AcceptSession).Fields) },
	},
	KindRenewSession: {
		name: "renew session", machines: MachineQueues, level: 1, front: frontEntity, holds: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RenewSession).fields) },
	},
	KindReleaseSession: {
		name: "release session", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ReleaseSession).fields) },
	},
	KindSetSessionState: {
		name: "set session state", machines: MachineQueues, level: 1, front: frontEntity, grows: mayGrow,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SetSessionState).Fields) },
	},
	KindTransact: {
		name: "transaction", machines: MachineQueues, level: 1, grows: mayGrow, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*Transact).fields) },
	},
	KindBeginEpoch: {
		name: "begin epoch", machines: MachineQueues, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*BeginEpoch).fields) },
	},
	KindReserveNumbers: {
		name: "reserve numbers", machines: MachineQueues, level: 1, front: frontEntity, holds: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ReserveNumbers).fields) },
	},
	KindFenceIdle: {
		name: "fence idle", machines: MachineQueues, level: 1, front: frontEntity,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FenceIdle).fields) },
	},
	KindFetchReady: {
		name: "fetch ready", machines: MachineQueues, level: 1, front: frontEntity, takes: TakesReady,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FetchReady).Fields) },
	},
	KindFoundCluster: {
		name: "found cluster", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*FoundCluster).fields) },
	},
	KindPartitionFormed: {
		name: "partition formed", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PartitionFormed).fields) },
	},
	KindCreateEntity: {
		name: "create entity", machines: MachineCatalog, level: 1, grows: alwaysGrows,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CreateEntity).fields) },
	},
	KindUpdateEntity: {
		name: "update entity", machines: MachineCatalog, level: 1, grows: alwaysGrows,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*UpdateEntity).fields) },
	},
	KindDeleteEntity: {
		name: "delete entity", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DeleteEntity).fields) },
	},
	KindForgetEntity: {
		name: "forget entity", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*ForgetEntity).fields) },
	},
	KindCreateNamespace: {
		name: "create namespace", machines: MachineCatalog, level: 1, grows: alwaysGrows,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*CreateNamespace).fields) },
	},
	KindUpdateNamespace: {
		name: "update namespace", machines: MachineCatalog, level: 1, grows: alwaysGrows,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*UpdateNamespace).fields) },
	},
	KindDeleteNamespace: {
		name: "delete namespace", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*DeleteNamespace).fields) },
	},
	KindSetAccess: {
		name: "set access", machines: MachineCatalog, level: 1, grows: mayGrow,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SetAccess).fields) },
	},
	KindSetMember: {
		name: "set member", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SetMember).fields) },
	},
	KindPlacePartition: {
		name: "place partition", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PlacePartition).fields) },
	},
	KindPartitionPlaced: {
		name: "partition placed", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*PartitionPlaced).fields) },
	},
	KindAddPartitions: {
		name: "add partitions", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*AddPartitions).fields) },
	},
	KindRaiseLevel: {
		name: "raise level", machines: MachineQueues | MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RaiseLevel).fields) },
	},
	KindHoldLevel: {
		name: "hold level", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*HoldLevel).fields) },
	},
	KindRenameCluster: {
		name: "rename cluster", machines: MachineCatalog, level: 1,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*RenameCluster).fields) },
	},
	KindReplaceReplica: {
		name: "replace replica", machines: MachineCatalog, level: 1,
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
		return k.row().machines&MachineCatalog != 0
	}
	return k.row().machines&MachineQueues != 0
}

// String returns the name of the kind for operators.
func (k Kind) String() string {
	if name := k.row().name; name != "" {
		return name
	}
	return fmt.Sprintf("command %d", uint8(k))
}

// Grows reports whether commands of this kind may store data, so that they are refused while disk space or memory is low;
// Grows of a command says whether it does.
func (k Kind) Grows() bool { return k.row().grows != neverGrows }

// Grows reports whether an encoded command stores data, so that it is refused while disk space or memory is low. What
// settles, clears, deletes or releases never does. It decodes the command if its kind does not tell.
func Grows(command []byte) bool {
	info, err := PeekCommand(command)
	if row := info.Kind.row(); err != nil || row.grows != mayGrow {
		return row.grows == alwaysGrows
	}
	_, c, err := DecodeCommand(command)
	g, ok := c.(interface{ grows() bool })
	return err == nil && ok && g.grows()
}

// Holds reports whether an encoded command frees nothing, although it does not grow: it renews locks, reserves numbers or moves
// messages. It is refused while only the last reserve of a disk is left, which is for what receives, settles, clears, deletes or releases.
func Holds(command []byte) bool {
	info, err := PeekCommand(command)
	return err == nil && info.Kind.row().holds
}

// Level returns the format level from which on a state machine performs commands of this kind; 1 for an unknown kind.
func (k Kind) Level() uint32 { return max(1, k.row().level) }

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

// The state machines. The numbers are part of the image format.
const (
	MachineQueues  byte = 1
	MachineCatalog byte = 2
)
