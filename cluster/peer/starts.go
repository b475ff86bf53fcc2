package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
)

// encodeReply returns the bytes of a reply.
func (p *Transport) encodeReply(reply Reply) []byte {
	x := fields.Encoder([]byte{byte(reply)})
	if reply == Accepted {
		p.config.Start.Fields(&x)
	}
	return appendChecksum(x.Buf)
}

var errDamagedReply = errors.New("the reply of the other member was damaged on its way")

// readReply reads a reply, and the start that follows Accepted. The error is a RefusedError for every other reply.
func readReply(r io.Reader) (start starts.Start, err error) {
	var encoded [1 + starts.Bytes + checksumBytes]byte
	if _, err := io.ReadFull(r, encoded[:1]); err != nil {
		return start, err // in TLS 1.3, a member that refuses this member's certificate reports it here
	}
	reply, end := Reply(encoded[0]), 1
	if reply == Accepted {
		end += starts.Bytes
	}
	if _, err := io.ReadFull(r, encoded[1:end+checksumBytes]); err != nil {
		return start, err
	}
	switch {
	case !hasChecksum(encoded[:end], encoded[end:end+checksumBytes]):
		return start, errDamagedReply
	case reply != Accepted:
		return start, RefusedError{reply}
	}
	x := fields.Decoder(encoded[1:end])
	start.Fields(&x)
	return start, x.End()
}

// observe records the start of another member of this cluster. An error means that its stream must be refused.
func (p *Transport) observe(member fsm.MemberID, cluster string, start *starts.Start) error {
	if p.config.Observe == nil || cluster == "" || p.config.Cluster() != cluster {
		return nil // no vote depends on it yet
	}
	err := p.config.Observe(member, *start)
	isOld, logs := errors.Is(err, starts.ErrOld), err != nil && p.refusals.Allow("start of "+string(member), time.Now())
	switch {
	case logs && isOld:
		p.config.Logger.Error("stream of a process refused: a later process of the member was seen, so its data folder is a copy or was replaced by an older one",
			"peer", member, "error", err)
	case logs:
		p.config.Logger.Warn("failed to record the start of a member", "peer", member, "error", err)
	}
	if isOld {
		return err
	}
	return nil
}

func (p *Transport) copied(err error) {
	if p.config.Copied != nil {
		p.config.Copied(err)
	}
}

// Halt closes all streams that are open and refuses new ones: this process is not the member any more.
func (p *Transport) Halt() { p.members.halt() }

// newestMax is how many members memberStreams remembers; without TLS anybody can name some.
const newestMax = 4096

// memberStreams holds the open streams to and from each member. The zero value holds none.
type memberStreams struct {
	mu     sync.Mutex
	open   map[fsm.MemberID]map[*memberStream]struct{}
	newest map[fsm.MemberID]uint64 // count of the newest start of which a stream was open
	halted bool
}

// memberStream is a stream of one process of a member.
type memberStream struct {
	net.Conn

	of     *memberStreams
	member fsm.MemberID
	once   sync.Once
}

// add returns the connection as one that is closed when a stream of a later process of the member is added. It returns false if one
// was added before.
func (m *memberStreams) add(member fsm.MemberID, start *starts.Start, conn net.Conn) (net.Conn, bool) {
	s := &memberStream{Conn: conn, of: m, member: member}
	m.mu.Lock()
	if m.halted || start.Count < m.newest[member] {
		m.mu.Unlock()
		return conn, false
	}
	if m.open == nil {
		m.open, m.newest = make(map[fsm.MemberID]map[*memberStream]struct{}), make(map[fsm.MemberID]uint64)
	}
	var old map[*memberStream]struct{}
	_, known := m.newest[member]
	if start.Count > m.newest[member] && (known || len(m.newest) < newestMax) {
		old, m.newest[member] = m.open[member], start.Count
		m.open[member] = nil
	}
	if m.open[member] == nil {
		m.open[member] = make(map[*memberStream]struct{})
	}
	m.open[member][s] = struct{}{}
	m.mu.Unlock()
	for other := range old {
		_ = other.Close()
	}
	return s, true
}

func (m *memberStreams) halt() {
	m.mu.Lock()
	m.halted = true
	var all []*memberStream
	for _, streams := range m.open {
		for s := range streams {
			all = append(all, s)
		}
	}
	m.mu.Unlock()
	for _, s := range all {
		_ = s.Close()
	}
}

// Close implements net.Conn.
func (s *memberStream) Close() error {
	s.once.Do(func() {
		s.of.mu.Lock()
		if delete(s.of.open[s.member], s); len(s.of.open[s.member]) == 0 {
			delete(s.of.open, s.member)
		}
		s.of.mu.Unlock()
	})
	return s.Conn.Close()
}

// ConnectionState returns the state of TLS; that of a plain stream is empty.
func (s *memberStream) ConnectionState() tls.ConnectionState {
	if t, ok := s.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return t.ConnectionState()
	}
	return tls.ConnectionState{}
}
