package peer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
)

// The header of a stream.
const (
	memberIDBytesMax  = 64
	clusterIDBytesMax = 64
	replicaBytesMax   = 80 // the id of a member, a dot and a number
	streamHeaderBytes = 9  // magic, version, draft in 2 bytes, and the length of the fields in 2 bytes
	streamFieldsMax   = 1 + 5 + 2*(1+memberIDBytesMax) + 1 + clusterIDBytesMax + 1 + replicaBytesMax + starts.Bytes
	checksumBytes     = 4
	streamMagic       = "PLKP"
	streamVersion     = 1
	tlsHelloRecord    = 0x16 // first byte of a TLS stream: a handshake record (RFC 8446, 5.1)
	tlsHelloMajor     = 0x03 // second byte of a handshake record
)

// Kind is the purpose of a stream.
type Kind byte

// The kinds of streams.
const (
	RaftStream    Kind = 1 // frames of package partition/transport, for the replica that the header names
	ForwardStream Kind = 2 // requests, as frames of package rpc
	BackupStream  Kind = 3 // a backup of one partition, to the member that dialled
)

// Reply is the byte that answers a header. The start of the member follows [Accepted], and a checksum every reply.
type Reply byte

// The replies.
const (
	Accepted       Reply = 1
	OtherMember    Reply = 2 // the address now belongs to another member
	ForeignCluster Reply = 3 // another cluster
	NoReplica      Reply = 4 // no replica of the partition is open on this member
	Busy           Reply = 5
	Unreadable     Reply = 6
	UnknownKind    Reply = 7
	WantsTLS       Reply = 8  // a plain stream was opened to a member with TLS
	WantsPlain     Reply = 9  // a TLS stream to a member without TLS; never sent, because a TLS client could not read it
	OtherReplica   Reply = 10 // the member has another replica of the partition now
	OtherDraft     Reply = 11 // the member has another draft of the formats, see fsm.FormatDraft
	OldStart       Reply = 12 // a later process of the member that dialled was seen
	Twin           Reply = 13 // the member that dialled has the identity of the one that answers, and is another process
)

// String describes the reply.
func (r Reply) String() string {
	switch r {
	case Accepted:
		return "accepted"
	case OtherMember:
		return "the address belongs to another member"
	case ForeignCluster:
		return "the member belongs to another cluster"
	case NoReplica:
		return "no replica of the partition is open there"
	case Busy:
		return "too many streams"
	case Unreadable:
		return "the header was not understood"
	case UnknownKind:
		return "the kind of stream was not understood"
	case WantsTLS:
		return "the other member accepts TLS streams only: configure a certificate for this one too"
	case WantsPlain:
		return "the other member uses TLS and this one does not: configure certificates for both, or for neither"
	case OtherReplica:
		return "the member has another replica of the partition now"
	case OtherDraft:
		return "the other member has another draft of the formats: before release 0.1.0, all members must run the same build"
	case OldStart:
		return "the member refuses this one: " + starts.ErrOld.Error()
	case Twin:
		return "another process has the same identity"
	}
	return fmt.Sprintf("reply %d", byte(r))
}

// RefusedError is any reply except Accepted.
type RefusedError struct{ Reply Reply }

// Error implements error.
func (e RefusedError) Error() string { return e.Reply.String() }

// streamHeader opens every stream between members.
type streamHeader struct {
	Kind      Kind
	Partition fsm.PartitionID // for raft and backup streams
	To, From  fsm.MemberID
	Cluster   string       // cluster id, empty while none is known
	Replica   string       // for raft streams, else empty
	Start     starts.Start // of From
}

func (h *streamHeader) fields(x *fields.Codec) {
	fields.Uint8(x, &h.Kind)
	fields.Uint32(x, &h.Partition)
	fields.Text(x, &h.To)
	fields.Text(x, &h.From)
	fields.Text(x, &h.Cluster)
	fields.Text(x, &h.Replica)
	h.Start.Fields(x)
}

// encode returns the header: magic, version, draft, the length of what follows, fields, checksum. The first four never change.
func (h *streamHeader) encode() []byte {
	x := fields.Encoder(append([]byte(streamMagic), streamVersion, byte(fsm.FormatDraft), byte(fsm.FormatDraft>>8), 0, 0))
	h.fields(&x)
	binary.LittleEndian.PutUint16(x.Buf[streamHeaderBytes-2:], uint16(len(x.Buf)+checksumBytes-streamHeaderBytes))
	return appendChecksum(x.Buf)
}

// appendChecksum appends the CRC-32C of b, little endian. Without TLS nothing else protects a header or a reply: one wrong bit in the
// start of a member, or in a reply, would make a member refuse another one for good, or stop itself.
func appendChecksum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// hasChecksum reports whether sum is the checksum of b.
func hasChecksum(b, sum []byte) bool {
	return binary.LittleEndian.Uint32(sum) == checksum(b)
}

// readStreamHeader reads a header and not a byte more, so that the handler of the stream gets what follows. It
// allocates at most a few hundred bytes.
func readStreamHeader(r io.Reader) (h streamHeader, err error) {
	var fixed [streamHeaderBytes]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return h, err
	}
	if isTLSHello(fixed[:]) {
		return h, RefusedError{WantsPlain}
	}
	size := binary.LittleEndian.Uint16(fixed[streamHeaderBytes-2:])
	if !isPeerMagic(fixed[:]) || size < checksumBytes || size > streamFieldsMax+checksumBytes {
		return h, RefusedError{Unreadable}
	}
	encoded := make([]byte, size)
	if _, err := io.ReadFull(r, encoded); err != nil {
		return h, err
	}
	if uint32(binary.LittleEndian.Uint16(fixed[streamHeaderBytes-4:])) != fsm.FormatDraft {
		return h, RefusedError{OtherDraft}
	}
	encoded, sum := encoded[:size-checksumBytes], encoded[size-checksumBytes:]
	if !hasChecksum(append(fixed[:], encoded...), sum) {
		return h, RefusedError{Unreadable}
	}
	x := fields.Decoder(encoded)
	h.fields(&x)
	x.Limit(len(h.To) <= memberIDBytesMax && len(h.From) <= memberIDBytesMax && len(h.Cluster) <= clusterIDBytesMax && len(h.Replica) <= replicaBytesMax)
	if x.End() != nil {
		return h, RefusedError{Unreadable}
	}
	return h, nil
}

// isPeerMagic reports whether a stream begins with a plain stream header.
func isPeerMagic(first []byte) bool {
	return len(first) > len(streamMagic) && string(first[:len(streamMagic)]) == streamMagic && first[len(streamMagic)] == streamVersion
}

// isTLSHello reports whether a stream begins with a TLS ClientHello.
func isTLSHello(first []byte) bool {
	return len(first) > 1 && first[0] == tlsHelloRecord && first[1] == tlsHelloMajor
}
