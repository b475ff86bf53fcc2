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
const commandVersion byte = 0xC1

// CommandInfo is the result of PeekCommand.
type CommandInfo struct {
	Kind     Kind
	Header   Header
	Entity   EntityID // the one concerned; 0 if the kind has none, or several
	Messages int      // that a SendMessages or TransferMessages brings, else 0
	// Settlements is the number of those in a SettleMessages, else 0.
	Settlements int
}

// ErrKind reports a command of a kind that this build does not know, or of another state machine.
var ErrKind = errors.New("unknown kind")

func appendHeader(dst []byte, k Kind, h Header) []byte {
	dst = append(dst, commandVersion, byte(k))
	dst = binary.LittleEndian.AppendUint64(dst, h.Incarnation)
	dst = binary.AppendUvarint(dst, h.Receiver)
	dst = binary.AppendUvarint(dst, h.Serial)
	return binary.AppendUvarint(dst, h.Low)
}

// ReadHeader reads what every command begins with.
func ReadHeader(r *fields.Codec) (Kind, Header) {
	if version := r.Byte(); version != commandVersion {
		r.Fail(fields.UnknownVersion(version, commandVersion))
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
	kind, h := ReadHeader(&x)
	c, err := ReadPayload(x, kind)
	if err != nil {
		return Header{}, nil, fmt.Errorf("decode command: %w", err)
	}
	if code := c.Check(); code != OK {
		return Header{}, nil, fmt.Errorf("decode command of kind %d: %w (%w)", kind, fields.ErrOverLimit, code)
	}
	return h, c, nil
}

// ReadPayload decodes the payload of a command. Kinds that carry messages or settlements are also decoded without
// copies, see Queues.perform.
func ReadPayload(x fields.Codec, kind Kind) (c Command, err error) {
	if x.Err() != nil {
		return nil, x.Err()
	}
	decode := kind.row().decode
	if decode == nil {
		return nil, ErrKind
	}
	c, x = decode(x)
	return c, x.End()
}

// PeekCommand decodes the header and the first fields of a command, without its messages. It does not
// validate the rest.
func PeekCommand(b []byte) (info CommandInfo, err error) {
	x := fields.Decoder(b)
	info.Kind, info.Header = ReadHeader(&x)
	row := info.Kind.row()
	if row.machines == 0 {
		x.Fail(ErrKind)
	}
	switch row.front {
	case frontOther:
	case frontEntity:
		fields.Uint64(&x, &info.Entity)
	case frontSend:
		fields.Uint64(&x, &info.Entity)
		info.Messages = x.Count(MessageBytesMin)
	case frontSettle:
		var at Address
		at.fields(&x)
		info.Entity, info.Settlements = at.Entity, x.Count(lockBytesMin)
	case frontTransfer:
		c, n := ReadTransferHead(&x)
		info.Entity, info.Messages = c.Entity, n
	}
	if x.Err() != nil {
		return CommandInfo{}, fmt.Errorf("peek command: %w", x.Err())
	}
	return info, nil
}

// VerifyCommand returns the kind of a command, and an error unless DecodeCommand would succeed. For commands with many
// messages it reads the bytes without building anything. Callers that take the bytes of a command from another process
// verify them before they enter a log, because a command that does not decode stops every replica
// that applies it.
func VerifyCommand(b []byte) (Kind, error) {
	x := fields.Decoder(b)
	kind, _ := ReadHeader(&x)
	verify := kind.row().verify
	if verify == nil || x.Err() != nil {
		_, _, err := DecodeCommand(b)
		return kind, err
	}
	if err := verify(x); err != nil {
		return kind, fmt.Errorf("verify command: %w", err)
	}
	return kind, nil
}

// Undecodable returns the text with which a state machine stops at a command that does not decode.
func Undecodable(env Env, kind Kind, err error) string {
	return fmt.Sprintf("fsm: command of kind %d at index %d: %v", kind, env.Index, err)
}
