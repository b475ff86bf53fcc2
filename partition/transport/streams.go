package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// Streams is the raft.StreamLayer of one raft instance: it dials through StreamConfig.Dial and accepts the
// streams given to Accepted. The raft address of a replica is the id of its member, so a member may
// change its network address at any time. The layer tracks all its streams, so closing it unblocks every
// goroutine that reads from one.
type Streams struct {
	cfg      StreamConfig
	accepted chan net.Conn
	done     chan struct{} // closed with the instance

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// StreamConfig configures the streams of a raft instance.
type StreamConfig struct {
	ID     fsm.PartitionID
	Member fsm.MemberID
	// Dial opens a stream to the same group at another member.
	Dial func(context.Context, fsm.MemberID, fsm.PartitionID) (net.Conn, error)
	// OnPeerEnd is called when a stream of a peer ended other than by a close of this side. It must not block.
	OnPeerEnd func()
	// Intercept is called with the first bytes of every stream that a peer opened. If it returns true, it has
	// served the stream, and raft sees the end of the stream.
	Intercept func(conn net.Conn, begin []byte) bool
}

// NewStreams creates the streams of a raft instance.
func NewStreams(cfg StreamConfig) *Streams {
	return &Streams{
		cfg:      cfg,
		accepted: make(chan net.Conn, acceptedWaitingMax),
		done:     make(chan struct{}),
		open:     make(map[*trackedConn]struct{}),
	}
}

// trackedConn removes itself from the layer when it is closed.
type trackedConn struct {
	net.Conn
	owner    *Streams
	fromPeer bool // the peer opened it
	started  bool // something was read; only one goroutine reads
}

// Read reports the end of a stream that the peer opened, because the peer may have died. It hides a stream
// that Intercept has served from raft: raft sees the end of the stream.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.fromPeer && !c.started && n > 0 {
		c.started = true
		if c.owner.cfg.Intercept(c.Conn, b[:n]) {
			return 0, io.EOF
		}
	}
	if err != nil && c.fromPeer && !errors.Is(err, net.ErrClosed) {
		c.owner.cfg.OnPeerEnd()
	}
	return n, err
}

func (c *trackedConn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// track registers a stream; a closed layer closes it at once.
func (s *Streams) track(conn net.Conn, peers bool) (net.Conn, error) {
	c := &trackedConn{Conn: conn, owner: s, fromPeer: peers}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.open[c] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	return c, nil
}

// Accepted queues a stream that the peer opened; when too many wait, it closes the stream, and the peer tries
// again.
func (s *Streams) Accepted(conn net.Conn) {
	c, err := s.track(conn, true)
	if err != nil {
		return
	}
	select {
	case s.accepted <- c:
	default:
		_ = c.Close()
	}
}

// Accept implements raft.StreamLayer.
func (s *Streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *Streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if fsm.MemberID(address) == s.cfg.Member { // a campaign, see instance.campaign
		ours, theirs := net.Pipe()
		s.Accepted(theirs)
		return s.track(ours, false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := s.cfg.Dial(ctx, fsm.MemberID(address), s.cfg.ID)
	if err != nil {
		return nil, err
	}
	return s.track(conn, false)
}

// Close implements raft.StreamLayer: it closes every stream.
func (s *Streams) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.done)
	}
	s.closed = true
	open := make([]*trackedConn, 0, len(s.open))
	for c := range s.open {
		open = append(open, c)
	}
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	return nil
}

// Addr implements raft.StreamLayer.
func (s *Streams) Addr() net.Addr { return memberAddr(s.cfg.Member) }

// memberAddr is a member id as a net.Addr.
type memberAddr fsm.MemberID

func (memberAddr) Network() string  { return "member" }
func (a memberAddr) String() string { return string(a) }

// IsClosed reports whether the streams were closed.
func (s *Streams) IsClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
