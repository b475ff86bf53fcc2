package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
)

// The layout of a command:
//
//	version      1 byte   commandVersion
//	kind         1 byte
//	incarnation  8 bytes  little endian
//	receiver     uvarint
//	serial       uvarint
//	low          uvarint
//	payload               see the method fields of the command
//
// Numbers are uvarints in their shortest form, texts and bodies have their length before them, and
// nothing may follow the payload. A command has exactly one encoding, so replicas may compare
// bytes. A decoder refuses everything else: an old binary that skipped unknown fields would apply
// half a command and make its replica diverge.
//
// Versions 1 to 3 were written before any release and are not read.
const commandVersion byte = 4

// CommandInfo is the result of PeekCommand.
type CommandInfo struct {
	Kind    Kind
	Header  Header
	Address Address // of the queue concerned; zero if the kind has none
	// Messages is the number of items: messages of a send, settlements, locks or sequence numbers;
	// for a LockMessages, PurgeMessages or ForwardMessages it is Max. Otherwise 0.
	Messages int
	// Delete and Session are those of a LockMessages.
	Delete  bool
	Session SessionLock
}

var errKind = errors.New("unknown kind")

func appendHeader(dst []byte, k Kind, h Header) []byte {
	dst = append(dst, commandVersion, byte(k))
	dst = binary.LittleEndian.AppendUint64(dst, h.Incarnation)
	dst = binary.AppendUvarint(dst, h.Receiver)
	dst = binary.AppendUvarint(dst, h.Serial)
	return binary.AppendUvarint(dst, h.Low)
}

func readHeader(r *fields.Codec) (Kind, Header) {
	if version := r.Byte(); version != commandVersion {
		r.Fail(fields.UnknownVersion(version, commandVersion, commandVersion))
	}
	k := Kind(r.Byte())
	return k, Header{Incarnation: r.Fixed64(), Receiver: r.Uvarint(), Serial: r.Uvarint(), Low: r.Uvarint()}
}

// AppendCommand appends the one encoding of c to dst. It checks no limits: [Check] does.
func AppendCommand(dst []byte, h Header, c Command) []byte {
	return c.encode(fields.Encoder(appendHeader(dst, c.kind(), h))).Buf
}

// DecodeCommand decodes the output of AppendCommand. Byte slices of the command alias b. An unknown
// version or kind, trailing bytes and anything over the limits of [Check] are errors.
func DecodeCommand(b []byte) (Header, Command, error) {
	x := fields.Decoder(b)
	kind, h := readHeader(&x)
	c := readPayload(&x, kind)
	if err := x.End(); err != nil {
		return Header{}, nil, fmt.Errorf("decode command: %w", err)
	}
	if code := c.check(); code != OK {
		return Header{}, nil, fmt.Errorf("decode command of kind %d: %w (%w)", kind, fields.ErrOverLimit, code)
	}
	return h, c, nil
}

// PeekCommand decodes the header and the first fields of a command, without its messages. It does not
// validate the rest.
func PeekCommand(b []byte) (CommandInfo, error) {
	x := fields.Decoder(b)
	var info CommandInfo
	info.Kind, info.Header = readHeader(&x)
	switch info.Kind { //nolint:exhaustive // of the others only the kind and the header are known
	case KindPutEntity, KindDropEntity, KindTouch, KindPutRule, KindDropRule,
		KindAcceptSession, KindAcceptNonExclusive, KindRenewSession, KindReleaseSession, KindSetSessionState, KindFenceIdle:
		fields.Uint64(&x, &info.Address.Entity)
	case KindSendMessages:
		fields.Uint64(&x, &info.Address.Entity)
		info.Messages = x.Count(messageBytesMin)
	case KindLockMessages:
		var c LockMessages
		c.fields(&x)
		info.Address, info.Messages, info.Delete, info.Session = c.Address, int(c.Max), c.Delete, c.Session
	case KindSettleMessages:
		info.Address.fields(&x)
		info.Messages = x.Count(settlementBytesMin)
	case KindRenewLocks:
		info.Address.fields(&x)
		info.Messages = x.Count(lockBytesMin)
	case KindFetchDeferred:
		info.Address.fields(&x)
		x.Bool()
		info.Messages = x.Count(1)
	case KindFetchReady:
		info.Address.fields(&x)
		x.Bool()
		info.Messages = x.Count(lockBytesMin)
	case KindCancelScheduled, KindRedriveMessages:
		fields.Uint64(&x, &info.Address.Entity)
		info.Messages = x.Count(1)
	case KindPurgeMessages:
		var c PurgeMessages
		c.fields(&x)
		info.Address, info.Messages = c.Address, int(c.Max)
	case KindForwardMessages:
		var c ForwardMessages
		c.fields(&x)
		info.Address, info.Messages = c.Address, int(c.Max)
	case KindBeginEpoch:
		var c BeginEpoch
		c.fields(&x)
		info.Address = c.Address
	case KindReserveNumbers:
		var c ReserveNumbers
		c.fields(&x)
		info.Address.Entity = c.Entity
	case KindTransferMessages, KindTransferBatch, KindTransferScheduled:
		c, n := readTransferHead(&x, info.Kind)
		info.Address.Entity, info.Messages = c.Entity, n
	default:
		if !info.Kind.IsFor(CatalogPartition) && info.Kind != KindTransact && info.Kind != KindTransactExtended {
			x.Fail(errKind)
		}
	}
	if x.Err() != nil {
		return CommandInfo{}, fmt.Errorf("peek command: %w", x.Err())
	}
	return info, nil
}

// VerifyCommand reports whether DecodeCommand would succeed. For commands with many messages it reads
// the bytes without building anything. Callers that take the bytes of a command from another process
// verify them before they enter a log, because a command that does not decode stops every replica
// that applies it.
func VerifyCommand(b []byte) error {
	x := fields.Decoder(b)
	kind, _ := readHeader(&x)
	switch kind { //nolint:exhaustive // the others are decoded
	case KindSendMessages:
		verifySend(&x)
	case KindSettleMessages:
		verifySettle(&x)
	case KindTransferMessages, KindTransferBatch, KindTransferScheduled:
		verifyTransfer(&x, kind)
	default:
		_, _, err := DecodeCommand(b)
		return err
	}
	if err := x.End(); err != nil {
		return fmt.Errorf("verify command: %w", err)
	}
	return nil
}
