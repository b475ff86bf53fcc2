package peer

import (
	"crypto/tls"
	"net"
	"sync"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
)

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
