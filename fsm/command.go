package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// Header makes a command exactly-once. The router of a member numbers its requests to a partition.
// The state machine remembers the answer to every (Incarnation, Receiver, Serial) until a later
// command of the receiver has a Low above that serial. A repeated command is answered from memory
// and not performed again (Raft dissertation, section 6.3). Incarnation 0 is the leader itself
// (pulses): its answers are not remembered.
type Header struct {
	Incarnation uint64 // of the requesting member, drawn at its start; 0: none
	Receiver    uint64 // 0 for ordinary requests, else one receiver, which has at most one request in flight
	Serial      uint64 // rises by one per receiver, from 1
	Low         uint64 // every Serial below it has been answered and need not be remembered
}

// Command is implemented by the command structs of this package, as values.
type Command interface {
	// kind returns the number of the command in the log format.
	kind() Kind
	// check validates the limits that do not depend on state, see Check.
	check() Code
	// encode appends the payload, what the method fields lists. The codec is a value because it would
	// escape to the heap as a pointer.
	encode(x fields.Codec) fields.Codec
}

// Check validates a command against the limits that do not depend on state: OK, InvalidArgument or
// MessageTooLarge. Callers that build a command check it before they encode it; the state machines
// check again.
func Check(c Command) Code { return c.check() }

// codeIf returns OK or InvalidArgument.
func codeIf(valid bool) Code {
	if valid {
		return OK
	}
	return InvalidArgument
}

// within reports whether n is between 1 and limit.
func within(n, limit int) bool { return n > 0 && n <= limit }

// payload decodes the payload of a command. Kinds that carry messages or settlements are also decoded
// without copies, see Queues.perform.
func readPayload(x *fields.Codec, kind Kind) Command {
	switch kind { //nolint:exhaustive // catalogPayload decodes the others
	case KindPulse:
		return Pulse{}
	case KindPutEntity:
		return decodeAs(x, (*PutEntity).fields)
	case KindDropEntity:
		return decodeAs(x, (*DropEntity).fields)
	case KindSendMessages:
		return decodeAs(x, (*SendMessages).fields)
	case KindLockMessages:
		return decodeAs(x, (*LockMessages).fields)
	case KindSettleMessages:
		return decodeAs(x, (*SettleMessages).fields)
	case KindRenewLocks:
		return decodeAs(x, (*RenewLocks).fields)
	case KindFetchDeferred:
		return decodeAs(x, (*FetchDeferred).fields)
	case KindCloseReceiver:
		return decodeAs(x, (*CloseReceiver).fields)
	case KindCancelScheduled:
		return decodeAs(x, (*CancelScheduled).fields)
	case KindPurgeMessages:
		return decodeAs(x, (*PurgeMessages).fields)
	case KindRedriveMessages:
		return decodeAs(x, (*RedriveMessages).fields)
	case KindTouch:
		return decodeAs(x, (*Touch).fields)
	case KindPutRule:
		return decodeAs(x, (*PutRule).fields)
	case KindDropRule:
		return decodeAs(x, (*DropRule).fields)
	case KindForwardMessages:
		return decodeAs(x, (*ForwardMessages).fields)
	case KindTransferMessages:
		return decodeAs(x, (*TransferMessages).fields)
	case KindAcceptSession:
		return decodeAs(x, (*AcceptSession).fields)
	case KindAcceptNonExclusive:
		return decodeAs(x, nonExclusiveFields)
	case KindRenewSession:
		return decodeAs(x, (*RenewSession).fields)
	case KindReleaseSession:
		return decodeAs(x, (*ReleaseSession).fields)
	case KindSetSessionState:
		return decodeAs(x, (*SetSessionState).fields)
	case KindTransact:
		return decodeAs(x, (*Transact).fields)
	case KindBeginEpoch:
		return decodeAs(x, (*BeginEpoch).fields)
	case KindTransferBatch:
		return decodeAs(x, batchFields)
	case KindTransferScheduled:
		return decodeAs(x, scheduledFields)
	case KindReserveNumbers:
		return decodeAs(x, (*ReserveNumbers).fields)
	case KindTransactExtended:
		return decodeAs(x, extendedFields)
	case KindFenceIdle:
		return decodeAs(x, (*FenceIdle).fields)
	case KindFetchReady:
		return decodeAs(x, (*FetchReady).fields)
	}
	return readCatalogPayload(x, kind)
}

// catalogPayload decodes the payload of a command of the catalog.
func readCatalogPayload(x *fields.Codec, kind Kind) Command {
	switch kind { //nolint:exhaustive // payload decodes the others
	case KindFoundCluster:
		return decodeAs(x, (*FoundCluster).fields)
	case KindPartitionFormed:
		return decodeAs(x, (*PartitionFormed).fields)
	case KindCreateEntity:
		return decodeAs(x, (*CreateEntity).fields)
	case KindUpdateEntity:
		return decodeAs(x, (*UpdateEntity).fields)
	case KindDeleteEntity:
		return decodeAs(x, (*DeleteEntity).fields)
	case KindForgetEntity:
		return decodeAs(x, (*ForgetEntity).fields)
	case KindCreateNamespace:
		return decodeAs(x, (*CreateNamespace).fields)
	case KindUpdateNamespace:
		return decodeAs(x, (*UpdateNamespace).fields)
	case KindDeleteNamespace:
		return decodeAs(x, (*DeleteNamespace).fields)
	case KindSetAccess:
		return decodeAs(x, (*SetAccess).fields)
	case KindSetMember:
		return decodeAs(x, (*SetMember).fields)
	case KindPlacePartition:
		return decodeAs(x, (*PlacePartition).fields)
	case KindReplacePartition:
		return decodeAs(x, replacementFields)
	case KindPartitionPlaced:
		return decodeAs(x, (*PartitionPlaced).fields)
	case KindReplaceReplica:
		return decodeAs(x, (*ReplaceReplica).fields)
	case KindAddPartitions:
		return decodeAs(x, (*AddPartitions).fields)
	case KindRaiseLevel:
		return decodeAs(x, (*RaiseLevel).fields)
	case KindRenameCluster:
		return decodeAs(x, (*RenameCluster).fields)
	}
	x.Fail(errKind)
	return Pulse{}
}

// decodeAs decodes the payload of a command of type C. It is inlined, so that neither the codec nor the
// command escapes.
func decodeAs[C Command](x *fields.Codec, list func(*C, *fields.Codec)) Command {
	var c C
	list(&c, x)
	return c
}
