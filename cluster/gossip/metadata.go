package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of the texts in metadata, in bytes. They keep its encoding within memberlist's limit of
// 512 bytes; the code that creates Metadata must check them.
const (
	NameBytesMax    = 64 // a member's name
	AddressBytesMax = 80 // one advertised address
	ZoneBytesMax    = 64
	VersionBytesMax = 32
)

// metadataVersion is the first byte of encoded Metadata.
const metadataVersion = 2

// Metadata is what a member announces about itself in gossip. The limits above keep its encoding within
// memberlist's 512 bytes.
type Metadata struct {
	Member      fsm.MemberID
	Name        string
	Cluster     string // cluster id, empty while none is known
	Peer        string // host:port; an empty host means the host that gossip uses
	AMQP, HTTP  string
	Version     string
	Zone        string // used by the bootstrap; later the zone in the catalog counts
	Level       uint32 // highest level that its binary can read
	Incarnation uint64 // random, new at each start
	Started     int64  // ms since 1970; of two processes with one member id, the later one is the member
	Leaving     bool   // it transfers its leaderships and accepts none
	ReadOnly    bool   // short of disk space or memory: accepts no new messages, leaderships and replicas
}

// The flags of metadata.
const (
	metadataLeaving = 1 << iota
	metadataReadOnly
)

var errMetadata = errors.New("metadata cannot be read")

// metadataFixedBytes is the length of the part before the texts.
const metadataFixedBytes = 22

// encode returns the encoded metadata: version, flags, incarnation, start, level, then the texts, each preceded
// by its length in one byte.
func (m *Metadata) encode() []byte {
	var dst []byte
	flags := byte(0)
	if m.Leaving {
		flags |= metadataLeaving
	}
	if m.ReadOnly {
		flags |= metadataReadOnly
	}
	dst = append(dst, metadataVersion, flags)
	dst = binary.BigEndian.AppendUint64(dst, m.Incarnation)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Started))
	dst = binary.BigEndian.AppendUint32(dst, m.Level)
	for _, text := range []string{string(m.Member), m.Name, m.Cluster, m.Peer, m.AMQP, m.HTTP, m.Version, m.Zone} {
		dst = append(dst, byte(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// decodeMetadata decodes what encode returns. It accepts nothing else.
func decodeMetadata(src []byte) (m Metadata, err error) {
	if len(src) < metadataFixedBytes || src[0] != metadataVersion || src[1] > metadataLeaving|metadataReadOnly {
		return m, errMetadata
	}
	m.Leaving, m.ReadOnly = src[1]&metadataLeaving != 0, src[1]&metadataReadOnly != 0
	m.Incarnation = binary.BigEndian.Uint64(src[2:])
	m.Started = int64(binary.BigEndian.Uint64(src[10:]))
	m.Level = binary.BigEndian.Uint32(src[18:])
	src = src[metadataFixedBytes:]
	var member string
	for _, text := range []*string{&member, &m.Name, &m.Cluster, &m.Peer, &m.AMQP, &m.HTTP, &m.Version, &m.Zone} {
		if len(src) < 1 || len(src) < 1+int(src[0]) {
			return Metadata{}, errMetadata
		}
		*text = string(src[1 : 1+src[0]])
		src = src[1+src[0]:]
	}
	m.Member = fsm.MemberID(member)
	if len(src) != 0 || !ValidMemberID(m.Member) {
		return Metadata{}, errMetadata
	}
	return m, nil
}

// nodeName returns the name of the process in gossip. Each start is a node of its own, so a member that comes
// back at another address does not conflict with what gossip still holds of its former process.
func (m *Metadata) nodeName() string { return fmt.Sprintf("%s.%016x", m.Member, m.Incarnation) }

// memberIDBytes is the length of a member id: 128 random bits and more in base32.
const memberIDBytes = 26

// ValidMemberID reports whether an id has the form of a member id, which makes it fit for a folder
// name, a log line and a header: 26 letters A to Z and digits 2 to 7.
func ValidMemberID(id fsm.MemberID) bool {
	for i := range len(id) {
		if c := id[i]; (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return len(id) == memberIDBytes
}
