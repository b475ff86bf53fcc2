package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

// Kind says which command lies in the bytes. The numbers are part of the log format:
// append only, zero is never valid.
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

	KindSetMember       Kind = 42
	KindPlacePartition  Kind = 43
	KindPartitionPlaced Kind = 44
	KindAddPartitions   Kind = 45
	KindRaiseLevel      Kind = 46
)

// IsFor says whether the machine of a partition takes commands of this kind. A command
// that it does not take must not get into its log: Apply would stop the replicas.
func (k Kind) IsFor(id PartitionID) bool {
	switch k {
	case KindPulse, KindCloseReceiver, KindRaiseLevel:
		return true
	case KindPutEntity, KindDropEntity, KindSendMessages, KindLockMessages,
		KindSettleMessages, KindRenewLocks, KindFetchDeferred,
		KindCancelScheduled, KindPurgeMessages, KindRedriveMessages, KindTouch,
		KindPutRule, KindDropRule, KindForwardMessages, KindTransferMessages,
		KindAcceptSession, KindRenewSession, KindReleaseSession, KindSetSessionState, KindTransact:
		return id != CatalogPartition
	case KindFoundCluster, KindPartitionFormed, KindCreateEntity, KindUpdateEntity, KindDeleteEntity, KindForgetEntity,
		KindCreateNamespace, KindUpdateNamespace, KindDeleteNamespace, KindSetAccess,
		KindSetMember, KindPlacePartition, KindPartitionPlaced, KindAddPartitions:
		return id == CatalogPartition
	}
	return false
}

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

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// reader takes an encoding apart. The first error stays and every later read gives
// zeros, so callers check once, at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// end returns the first error; bytes left over are one.
func (r *reader) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail(errTrailing)
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail(errFlag)
	}
	return v == 1
}

func (r *reader) fixed64() uint64 {
	if len(r.b) < 8 {
		r.fail(errShort)
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// uvarint reads a number in its shortest form only: a second encoding of the same
// command would break the comparison of bytes.
func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	switch {
	case n == 0:
		r.fail(errShort)
		return 0
	case n < 0 || r.b[n-1] == 0:
		r.fail(errNumber)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail(errNumber)
		return 0
	}
	return uint32(v)
}

func (r *reader) instant() Instant {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.fail(errNumber)
		return 0
	}
	return Instant(v)
}

// bytes returns a piece of the input, capped so that an append copies it.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.bytes()) }

// count reads how many items follow, each of at least least bytes. A count that the
// rest of the input cannot back is an error, so nothing is allocated for it.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/least) {
		r.fail(errCount)
		return 0
	}
	return int(n)
}
