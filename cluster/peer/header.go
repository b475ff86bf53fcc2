package peer

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/peeklock/peeklock/fsm"
)

// The header of a stream.
const (
	memberIDBytesMax  = 64
	clusterIDBytesMax = 64
	replicaBytesMax   = 80 // the id of a member, a dot and a number
	streamHeaderBytes = 10 // magic, version, kind, partition
	streamMagic       = "PLKP"
	streamVersion     = 1
)

// Kind is the purpose of a stream.
type Kind byte

// The kinds of streams.
const (
	RaftStream    Kind = 1 // raft messages of one partition
	ForwardStream Kind = 2 // requests, as frames of package rpc
	BackupStream  Kind = 3 // a backup of one partition, to the member that dialled
	ReplicaStream Kind = 4 // raft messages of one partition, for the replica that the header names
	FramedStream  Kind = 5 // the same as frames of package partition/transport
)

// Reply is the one byte that answers a header.
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
	Cluster   string // cluster id, empty while none is known
	Replica   string // for replica and framed streams, else empty
}

// namesReplica reports whether headers of that kind name a replica.
func (k Kind) namesReplica() bool { return k == ReplicaStream || k == FramedStream }

// encode returns the header: magic, version, kind, partition, then to, from and
// cluster, and for some kinds the replica, each preceded by its length in one byte. A member that does not know
// the kind does not read the replica either.
func (h *streamHeader) encode() []byte {
	var dst []byte
	dst = append(dst, streamMagic...)
	dst = append(dst, streamVersion, byte(h.Kind))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Partition))
	texts := []string{string(h.To), string(h.From), h.Cluster}
	if h.Kind.namesReplica() {
		texts = append(texts, h.Replica)
	}
	for _, text := range texts {
		dst = append(dst, byte(len(text)))
		dst = append(dst, text...)
	}
	return dst
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
	if !isPeerMagic(fixed[:]) {
		return h, RefusedError{Unreadable}
	}
	h.Kind = Kind(fixed[5])
	h.Partition = fsm.PartitionID(binary.BigEndian.Uint32(fixed[6:]))
	limits := []byte{memberIDBytesMax, memberIDBytesMax, clusterIDBytesMax, 0}
	if h.Kind.namesReplica() {
		limits[3] = replicaBytesMax
	}
	var texts [4]string
	for i, limit := range limits {
		if limit == 0 {
			break
		}
		var size [1]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return h, err
		}
		if size[0] > limit {
			return h, RefusedError{Unreadable}
		}
		text := make([]byte, size[0])
		if _, err := io.ReadFull(r, text); err != nil {
			return h, err
		}
		texts[i] = string(text)
	}
	h.To, h.From, h.Cluster, h.Replica = fsm.MemberID(texts[0]), fsm.MemberID(texts[1]), texts[2], texts[3]
	return h, nil
}
