package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The layout of a command:
//
//	version  1 byte   commandVersion
//	kind     1 byte
//	incarnation   8 bytes  little endian
//	receiver     uvarint
//	serial   uvarint
//	low      uvarint
//	payload           as its kind says
//
// Numbers are uvarints in their shortest form, texts and bodies carry their length
// before them, and nothing may follow the payload. There is exactly one encoding of
// a command, so replicas may compare bytes. A decoder that meets anything else
// refuses it: an old binary that skipped what it does not know would apply half a
// command and fork its replica.
//
// Versions 1 to 3 were written before any release and are not read.
const commandVersion byte = 4

// CommandInfo is what PeekCommand finds out.
type CommandInfo struct {
	Kind    Kind
	Header  Header
	Address Address // of the queue concerned; zero when the kind has none
	// Messages counts the items: messages of a send, settlements, locks or sequence
	// numbers; of a LockMessages, PurgeMessages or
	// ForwardMessages it is Max. Otherwise 0.
	Messages int
	// Delete and Session are those of a LockMessages.
	Delete  bool
	Session SessionLock
}

// What is wrong with bytes that do not decode. They are wrapped with the place.
var (
	errShort     = errors.New("bytes end early")
	errVersion   = errors.New("unknown version")
	errKind      = errors.New("unknown kind")
	errTrailing  = errors.New("bytes left over")
	errNumber    = errors.New("number is not in its shortest form or too large")
	errCount     = errors.New("count is more than the bytes can hold")
	errFlag      = errors.New("unknown flag")
	errOverLimit = errors.New("over the limit")
)

// AppendCommand appends the one encoding of c to dst. It panics on a type that is not
// a command of this package. It checks no limits: [Check] does.
func AppendCommand(dst []byte, h Header, c Command) []byte {
	head := func(k Kind) []byte { return appendHeader(dst, k, h) }
	switch c := c.(type) {
	case Pulse:
		return head(KindPulse)
	case PutEntity:
		return appendPutEntity(head(KindPutEntity), c)
	case DropEntity:
		return binary.AppendUvarint(head(KindDropEntity), uint64(c.Entity))
	case SendMessages:
		return appendSendMessages(head(KindSendMessages), c)
	case LockMessages:
		return appendLockMessages(head(KindLockMessages), c)
	case SettleMessages:
		return appendSettleMessages(head(KindSettleMessages), c)
	case RenewLocks:
		return appendRenewLocks(head(KindRenewLocks), c)
	case FetchDeferred:
		return appendFetchDeferred(head(KindFetchDeferred), c)
	case CloseReceiver:
		dst = binary.LittleEndian.AppendUint64(head(KindCloseReceiver), c.Incarnation)
		return binary.AppendUvarint(dst, c.Receiver)
	case CancelScheduled:
		return appendNumbers(binary.AppendUvarint(head(KindCancelScheduled), uint64(c.Entity)), c.Sequences)
	case PurgeMessages:
		return appendPurgeMessages(head(KindPurgeMessages), c)
	case RedriveMessages:
		return appendNumbers(binary.AppendUvarint(head(KindRedriveMessages), uint64(c.Entity)), c.Sequences)
	case Touch:
		return binary.AppendUvarint(head(KindTouch), uint64(c.Entity))
	case PutRule:
		return appendPutRule(head(KindPutRule), c)
	case DropRule:
		return appendString(binary.AppendUvarint(head(KindDropRule), uint64(c.Subscription)), c.Name)
	case ForwardMessages:
		return appendForwardMessages(head(KindForwardMessages), c)
	case TransferMessages:
		return appendTransferMessages(head(KindTransferMessages), c)
	case AcceptSession:
		return appendAcceptSession(head(KindAcceptSession), c)
	case RenewSession:
		return appendSessionLock(binary.AppendUvarint(head(KindRenewSession), uint64(c.Entity)), c.Lock)
	case ReleaseSession:
		return appendSessionLock(binary.AppendUvarint(head(KindReleaseSession), uint64(c.Entity)), c.Lock)
	case SetSessionState:
		return appendSetSessionState(head(KindSetSessionState), c)
	case Transact:
		return appendTransact(head(KindTransact), c)
	default:
		return appendCatalogCommand(dst, h, c)
	}
}

// DecodeCommand reads what AppendCommand wrote. Byte slices of the command alias b.
// An unknown version or kind, bytes left over and anything over the limits of
// [Check] are errors.
func DecodeCommand(b []byte) (Header, Command, error) {
	r := reader{b: b}
	kind, h := r.header()
	c := r.payload(kind)
	if err := r.end(); err != nil {
		return Header{}, nil, fmt.Errorf("decode command: %w", err)
	}
	if code := Check(c); code != OK {
		return Header{}, nil, fmt.Errorf("decode command of kind %d: %w (%w)", kind, errOverLimit, code)
	}
	return h, c, nil
}

// payload reads what stands behind the header.
func (r *reader) payload(kind Kind) Command {
	switch kind { //nolint:exhaustive // catalogPayload reads the others
	case KindPulse:
		return Pulse{}
	case KindPutEntity:
		return r.putEntity()
	case KindDropEntity:
		return DropEntity{Entity: EntityID(r.uvarint())}
	case KindSendMessages:
		return r.sendMessages()
	case KindLockMessages:
		return r.lockMessages()
	case KindSettleMessages:
		return r.settleMessages(nil)
	case KindRenewLocks:
		return r.renewLocks()
	case KindFetchDeferred:
		return r.fetchDeferred()
	case KindCloseReceiver:
		return r.closeReceiver()
	case KindCancelScheduled:
		return CancelScheduled{Entity: EntityID(r.uvarint()), Sequences: r.numbers()}
	case KindPurgeMessages:
		return r.purgeMessages()
	case KindRedriveMessages:
		return RedriveMessages{Entity: EntityID(r.uvarint()), Sequences: r.numbers()}
	case KindTouch:
		return Touch{Entity: EntityID(r.uvarint())}
	case KindPutRule:
		return r.putRule()
	case KindDropRule:
		return DropRule{Subscription: EntityID(r.uvarint()), Name: r.string()}
	case KindForwardMessages:
		return r.forwardMessages()
	case KindTransferMessages:
		return r.transferMessages()
	case KindAcceptSession:
		return r.acceptSession()
	case KindRenewSession:
		return RenewSession{Entity: EntityID(r.uvarint()), Lock: r.sessionLock()}
	case KindReleaseSession:
		return ReleaseSession{Entity: EntityID(r.uvarint()), Lock: r.sessionLock()}
	case KindSetSessionState:
		return r.setSessionState()
	case KindTransact:
		return r.transact()
	}
	return r.catalogPayload(kind)
}

// PeekCommand reads the header and the first numbers of a command and nothing of its
// messages: that a command peeks well does not mean that it decodes.
func PeekCommand(b []byte) (CommandInfo, error) {
	r := reader{b: b}
	var info CommandInfo
	info.Kind, info.Header = r.header()
	switch info.Kind {
	case KindPutEntity, KindDropEntity, KindTouch, KindPutRule, KindDropRule,
		KindAcceptSession, KindRenewSession, KindReleaseSession, KindSetSessionState:
		info.Address.Entity = EntityID(r.uvarint())
	case KindSendMessages:
		info.Address.Entity = EntityID(r.uvarint())
		info.Messages = r.count(messageBytesMin)
	case KindLockMessages:
		c := r.lockMessages()
		info.Address, info.Messages, info.Delete, info.Session = c.Address, int(c.Max), c.Delete, c.Session
	case KindSettleMessages:
		info.Address = r.address()
		info.Messages = r.count(settlementBytesMin)
	case KindRenewLocks:
		info.Address = r.address()
		info.Messages = r.count(lockBytesMin)
	case KindFetchDeferred:
		info.Address = r.address()
		r.bool()
		info.Messages = r.count(1)
	case KindCancelScheduled, KindRedriveMessages:
		info.Address.Entity = EntityID(r.uvarint())
		info.Messages = r.count(1)
	case KindPurgeMessages:
		c := r.purgeMessages()
		info.Address, info.Messages = c.Address, int(c.Max)
	case KindForwardMessages:
		c := r.forwardMessages()
		info.Address, info.Messages = c.Address, int(c.Max)
	case KindTransferMessages:
		c, n := r.transferHead()
		info.Address.Entity, info.Messages = c.Entity, n
	case KindPulse, KindCloseReceiver, KindTransact,
		KindFoundCluster, KindPartitionFormed, KindCreateEntity, KindUpdateEntity, KindDeleteEntity, KindForgetEntity,
		KindCreateNamespace, KindUpdateNamespace, KindDeleteNamespace, KindSetAccess,
		KindSetMember, KindPlacePartition, KindPartitionPlaced, KindAddPartitions, KindRaiseLevel:
	default:
		r.fail(errKind)
	}
	if r.err != nil {
		return CommandInfo{}, fmt.Errorf("peek command: %w", r.err)
	}
	return info, nil
}

// VerifyCommand says whether DecodeCommand would succeed, for the price of a walk over
// the bytes: it builds nothing. Whoever takes command bytes from another process calls
// it before they go into a log, because a command that does not decode stops every
// replica that applies it.
func VerifyCommand(b []byte) error {
	r := reader{b: b}
	kind, _ := r.header()
	switch kind {
	case KindSendMessages:
		r.verifySend()
	case KindSettleMessages:
		r.verifySettle()
	case KindTransferMessages:
		r.verifyTransfer()
	case KindPulse, KindPutEntity, KindDropEntity, KindLockMessages, KindRenewLocks, KindFetchDeferred, KindCloseReceiver,
		KindCancelScheduled, KindPurgeMessages, KindRedriveMessages, KindTouch, KindPutRule, KindDropRule,
		KindForwardMessages, KindAcceptSession, KindRenewSession, KindReleaseSession, KindSetSessionState, KindTransact,
		KindFoundCluster, KindPartitionFormed, KindCreateEntity, KindUpdateEntity, KindDeleteEntity, KindForgetEntity,
		KindCreateNamespace, KindUpdateNamespace, KindDeleteNamespace, KindSetAccess,
		KindSetMember, KindPlacePartition, KindPartitionPlaced, KindAddPartitions, KindRaiseLevel:
		_, _, err := DecodeCommand(b)
		return err
	default:
		r.fail(errKind)
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("verify command: %w", err)
	}
	return nil
}

// unknownVersion says which version was found and which are read.
func unknownVersion(found, from, to byte) error {
	if from == to {
		return fmt.Errorf("%w %d: this release reads version %d", errVersion, found, to)
	}
	return fmt.Errorf("%w %d: this release reads versions %d to %d", errVersion, found, from, to)
}

func appendHeader(dst []byte, k Kind, h Header) []byte {
	dst = append(dst, commandVersion, byte(k))
	dst = binary.LittleEndian.AppendUint64(dst, h.Incarnation)
	dst = binary.AppendUvarint(dst, h.Receiver)
	dst = binary.AppendUvarint(dst, h.Serial)
	return binary.AppendUvarint(dst, h.Low)
}

func (r *reader) header() (Kind, Header) {
	if version := r.byte(); version != commandVersion {
		r.fail(unknownVersion(version, commandVersion, commandVersion))
	}
	k := Kind(r.byte())
	return k, Header{Incarnation: r.fixed64(), Receiver: r.uvarint(), Serial: r.uvarint(), Low: r.uvarint()}
}
