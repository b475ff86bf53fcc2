package gossip

import (
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
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

var (
	errMetadata = errors.New("metadata cannot be read")
	errDraft    = errors.New("the member has another draft of the formats")
)

func (m *Metadata) fields(x *fields.Codec) {
	fields.Version(x, metadataVersion)
	draft := fsm.FormatDraft
	if fields.Uint32(x, &draft); draft != fsm.FormatDraft && x.Err() == nil {
		x.Fail(fmt.Errorf("%w: %d instead of %d", errDraft, draft, fsm.FormatDraft))
	}
	fields.Flags(x, &m.Leaving, &m.ReadOnly)
	fields.Fixed64(x, &m.Incarnation)
	fields.Int64(x, &m.Started)
	fields.Uint32(x, &m.Level)
	fields.Text(x, &m.Member)
	for _, text := range []*string{&m.Name, &m.Cluster, &m.Peer, &m.AMQP, &m.HTTP, &m.Version, &m.Zone} {
		fields.Text(x, text)
	}
}

// encode returns the encoded metadata.
func (m *Metadata) encode() []byte {
	x := fields.Encoder(nil)
	m.fields(&x)
	return x.Buf
}

// decodeMetadata decodes what encode returns. It accepts nothing else.
func decodeMetadata(src []byte) (m Metadata, err error) {
	x := fields.Decoder(src)
	m.fields(&x)
	if err := x.End(); err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", errMetadata, err)
	}
	if !ValidMemberID(m.Member) {
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
