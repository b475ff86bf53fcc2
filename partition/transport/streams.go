package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

const (
	acceptedWaitingMax = 16 // raft streams accepted and not yet taken by the transport
	streamsPerPeerMax  = 16 // opened by one peer; it needs one for entries, one for heartbeats and those that are idle
)

// Streams holds the streams of one raft instance: those that it dials through StreamConfig.Dial, and those of peers, which are
// given to Accepted. The raft address of a replica is the id of its member, so a member may change its network address at any time.
// Closing Streams unblocks every goroutine that reads from one.
type Streams struct {
	cfg      StreamConfig
	accepted chan *trackedConn
	done     chan struct{} // closed with the instance

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// StreamConfig configures the streams of a raft instance.
type StreamConfig struct {
	ID     fsm.PartitionID
	Member fsm.MemberID
	// Dial opens a stream to the named replica of the same group at another member, whose streams get it with Accepted.
	Dial func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error)
	// OnPeerEnd is called when a stream of a peer ended other than by a close of this side. It must not block.
	OnPeerEnd func()
}

// NewStreams creates the streams of a raft instance.
func NewStreams(cfg StreamConfig) *Streams {
	return &Streams{
		cfg:      cfg,
		accepted: make(chan *trackedConn, acceptedWaitingMax),
		done:     make(chan struct{}),
		open:     make(map[*trackedConn]struct{}),
	}
}

// replicaSeparator stands between member and replica in an address that names both.
const replicaSeparator = "\x00"

// replicaAddress returns the address of a replica at a member. Raft addresses a replica by its member alone.
func replicaAddress(id raft.ServerID, member raft.ServerAddress) raft.ServerAddress {
	return member + raft.ServerAddress(replicaSeparator+string(id))
}

const (
	streamRequestTimeout = 10 * time.Second // for a chunk to be written, and for an answer once all is written
	streamChunkBytes     = 64 << 10
	// The answer to a request may come late by the time that its bytes take on a network of that speed: they may lie
	// in buffers when they count as written.
	streamBytesPerSecondMin = 256 << 10
	streamBufferedBytesMax  = 16 << 20
)

// trackedConn is a stream of raft. It removes itself from its Streams when it is closed.
type trackedConn struct {
	net.Conn
	owner    *Streams
	fromPeer bool         // the peer opened it
	peer     fsm.MemberID // at the other end

	lastRead atomic.Int64 // when something was read last, in ns since 1970
}

// Read reports the end of a stream that the peer opened, because the peer may have died.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lastRead.Store(time.Now().UnixNano())
	if err != nil && c.fromPeer && !errors.Is(err, net.ErrClosed) {
		c.owner.cfg.OnPeerEnd()
	}
	return n, err
}

// answerTime returns how long the answer to a request of so many bytes may take after all of them were written.
func answerTime(size int) time.Duration {
	return streamRequestTimeout + time.Duration(min(size, streamBufferedBytesMax))*time.Second/streamBytesPerSecondMin
}

// Write writes in chunks, each with a deadline of its own: a deadline for all would depend on the size and on the network.
func (c *trackedConn) Write(b []byte) (n int, err error) {
	if c.fromPeer {
		return c.Conn.Write(b)
	}
	for chunk := range slices.Chunk(b, streamChunkBytes) {
		if err := c.SetWriteDeadline(time.Now().Add(streamRequestTimeout)); err != nil {
			return n, err
		}
		sent, err := c.Conn.Write(chunk)
		if n += sent; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// CloseSilent closes the streams of peers on which nothing has arrived for that long.
func (s *Streams) CloseSilent(length time.Duration) {
	before := time.Now().Add(-length).UnixNano()
	s.mu.Lock()
	var silent []*trackedConn
	for c := range s.open {
		if c.fromPeer && c.lastRead.Load() < before {
			silent = append(silent, c)
		}
	}
	s.mu.Unlock()
	for _, c := range silent {
		_ = c.Close()
	}
}

// track registers a stream, which c describes; it closes it at once after Close.
func (s *Streams) track(c *trackedConn) (*trackedConn, error) {
	conn := c.Conn
	c.owner = s
	c.lastRead.Store(time.Now().UnixNano())
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

// Accepted queues a stream that a peer opened; when too many wait, it closes the stream, and the peer tries
// again. A peer has at most streamsPerPeerMax streams: a further one replaces that on which nothing has arrived for
// longest, because those of a peer that lost its power stay open for minutes.
func (s *Streams) Accepted(from fsm.MemberID, conn net.Conn) {
	s.closeExcess(from)
	c, err := s.track(&trackedConn{Conn: conn, fromPeer: true, peer: from})
	if err != nil {
		return
	}
	select {
	case s.accepted <- c:
	default:
		_ = c.Close()
	}
}

// closeExcess closes a stream of a peer if one more would exceed the limit.
func (s *Streams) closeExcess(from fsm.MemberID) {
	s.mu.Lock()
	var silent *trackedConn
	streams := 0
	for c := range s.open {
		if !c.fromPeer || c.peer != from {
			continue
		}
		if streams++; silent == nil || c.lastRead.Load() < silent.lastRead.Load() {
			silent = c
		}
	}
	s.mu.Unlock()
	if streams >= streamsPerPeerMax {
		_ = silent.Close()
	}
}

// accept returns the next stream that a peer has opened.
func (s *Streams) accept() (*trackedConn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// dial opens a stream to a replica, within timeout.
func (s *Streams) dial(address raft.ServerAddress, timeout time.Duration) (*trackedConn, error) {
	ctx, cancel := s.dialContext(timeout)
	defer cancel()
	member, replica, _ := strings.Cut(string(address), replicaSeparator)
	conn, err := s.cfg.Dial(ctx, fsm.MemberID(member), s.cfg.ID, replica)
	if err != nil {
		return nil, err
	}
	return s.track(&trackedConn{Conn: conn, peer: fsm.MemberID(member)})
}

// dialContext returns a context that ends after timeout and with the instance.
func (s *Streams) dialContext(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Close closes every stream.
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

// IsClosed reports whether the streams were closed.
func (s *Streams) IsClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
