package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// metadataVersion is the first byte of what a member says about itself in gossip.
const metadataVersion = 1

// metadata is what a member says about itself in gossip. The limits of Config keep
// its encoding within memberlist's 512 bytes.
type metadata struct {
	Member      fsm.MemberID
	Name        string
	Cluster     string // cluster id, empty while none is known
	Peer        string // host:port; an empty host stands for the address of gossip
	AMQP, HTTP  string
	Version     string
	Incarnation uint64 // drawn at each start
	Started     int64  // ms since 1970: of two processes with one member id, the later counts
	Leaving     bool   // gives its leaderships away and wants none
}

var errMetadata = errors.New("metadata cannot be read")

// appendTo encodes the metadata: version, flags, incarnation, start, then the texts, each
// behind one byte of length.
func (m *metadata) appendTo(dst []byte) []byte {
	flags := byte(0)
	if m.Leaving {
		flags = 1
	}
	dst = append(dst, metadataVersion, flags)
	dst = binary.BigEndian.AppendUint64(dst, m.Incarnation)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Started))
	for _, text := range []string{string(m.Member), m.Name, m.Cluster, m.Peer, m.AMQP, m.HTTP, m.Version} {
		dst = append(dst, byte(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// decodeMetadata reads what appendTo wrote. It accepts nothing else.
func decodeMetadata(src []byte) (m metadata, err error) {
	if len(src) < 18 || src[0] != metadataVersion || src[1] > 1 {
		return m, errMetadata
	}
	m.Leaving = src[1] == 1
	m.Incarnation = binary.BigEndian.Uint64(src[2:])
	m.Started = int64(binary.BigEndian.Uint64(src[10:]))
	src = src[18:]
	var member string
	for _, text := range []*string{&member, &m.Name, &m.Cluster, &m.Peer, &m.AMQP, &m.HTTP, &m.Version} {
		if len(src) < 1 || len(src) < 1+int(src[0]) {
			return metadata{}, errMetadata
		}
		*text = string(src[1 : 1+src[0]])
		src = src[1+src[0]:]
	}
	m.Member = fsm.MemberID(member)
	if len(src) != 0 || !memberIDPattern.MatchString(member) {
		return metadata{}, errMetadata
	}
	return m, nil
}

// node is the name of the process in gossip. Each start is a node of its own, so a
// member that comes back at another address is never in conflict with what gossip
// still holds of its former self.
func (m *metadata) node() string { return fmt.Sprintf("%s.%016x", m.Member, m.Incarnation) }
