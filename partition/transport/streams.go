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
	"github.com/peeklock/peeklock/fsm/planted"
)

// Streams is the raft.StreamLayer of one raft instance: it dials through StreamConfig.Dial and accepts the
// streams given to Accepted. The raft address of a replica is the id of its member, so a member may
// change its network address at any time. The layer tracks all its streams, so closing it unblocks every
// goroutine that reads from one.
type Streams struct {
	cfg      StreamConfig
	accepted chan *trackedConn // in raft's own encoding
	framed   chan *trackedConn
	done     chan struct{} // closed with the instance

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// StreamConfig configures the streams of a raft instance.
type StreamConfig struct {
	ID     fsm.PartitionID
	Member fsm.MemberID
	// Dial opens a stream to the named replica of the same group at another member.
	Dial func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error)
	// DialFramed opens a framed stream to a replica. It returns known false and no error if the member does not know such
	// streams. If it is nil, no member does.
	DialFramed func(ctx context.Context, member fsm.MemberID, id fsm.PartitionID, replica string) (conn net.Conn, known bool, err error)
	// OnPeerEnd is called when a stream of a peer ended other than by a close of this side. It must not block.
	OnPeerEnd func()
}

// NewStreams creates the streams of a raft instance.
func NewStreams(cfg StreamConfig) *Streams {
	return &Streams{
		cfg:      cfg,
		accepted: make(chan *trackedConn, acceptedWaitingMax),
		framed:   make(chan *trackedConn, acceptedWaitingMax),
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

// trackedConn is a stream of raft. It removes itself from the layer when it is closed. On a stream that this side
// opened, deadlines are for progress: raft gives a request ten seconds, whatever its size and the network.
type trackedConn struct {
	net.Conn
	owner    *Streams
	fromPeer bool               // a peer opened it
	peer     fsm.MemberID       // that opened it
	address  raft.ServerAddress // that was dialled, if this side opened it
	framed   bool               // its users set the deadlines for answers themselves

	lastRead atomic.Int64 // when something was read last, in ns since 1970

	mu       sync.Mutex
	deadline time.Time // that raft set for the answer
	written  []int     // bytes of each request whose answer was not read in whole, oldest first
	reading  bool      // the answer to the oldest of them is being read
}

// Read reports the end of a stream that the peer opened, because the peer may have died.
func (c *trackedConn) Read(b []byte) (int, error) {
	if !c.fromPeer && !c.framed {
		if err := c.Conn.SetReadDeadline(c.answerDeadline(time.Now())); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	c.lastRead.Store(time.Now().UnixNano())
	if err != nil && c.fromPeer && !errors.Is(err, net.ErrClosed) {
		c.owner.cfg.OnPeerEnd()
	}
	return n, err
}

// answerDeadline returns when an answer must have come: raft's deadline, or later if its request was large. Raft has
// written a request in whole, and read the answers to those before it, when it reads the answer.
func (c *trackedConn) answerDeadline(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	buffered := 0
	if len(c.written) > 0 {
		buffered = c.written[0]
	}
	at := now.Add(answerTime(buffered))
	if c.deadline.After(at) {
		return c.deadline
	}
	return at
}

// answerTime returns how long the answer to a request of so many bytes may take after all of them were written.
func answerTime(size int) time.Duration {
	return streamRequestTimeout + time.Duration(min(size, streamBufferedBytesMax))*time.Second/streamBytesPerSecondMin
}

// Write writes in chunks, each with a deadline of its own.
func (c *trackedConn) Write(b []byte) (n int, err error) {
	if c.fromPeer {
		return c.Conn.Write(b)
	}
	for chunk := range slices.Chunk(b, streamChunkBytes) {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(streamRequestTimeout)); err != nil {
			return n, err
		}
		sent, err := c.Conn.Write(chunk)
		n += sent
		c.mu.Lock()
		if n := len(c.written); n > 0 {
			c.written[n-1] += sent
		}
		c.mu.Unlock()
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// SetDeadline is called by raft before it sends a request and reads its answer, without others in flight.
func (c *trackedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !planted.Active(planted.InheritDeadline) {
		c.written = c.written[:0]
	}
	c.written, c.reading, c.deadline = append(c.written, 0), true, t
	return nil
}

// SetWriteDeadline is called by raft before it sends a request through a pipeline.
func (c *trackedConn) SetWriteDeadline(time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = append(c.written, 0)
	return nil
}

// SetReadDeadline is called by raft before it reads the next answer of a pipeline.
func (c *trackedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading && len(c.written) > 1 {
		c.written = slices.Delete(c.written, 0, 1)
	}
	c.reading, c.deadline = true, t
	return nil
}

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

// track registers a stream, which c describes; a closed layer closes it at once.
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
func (s *Streams) Accepted(from fsm.MemberID, framed bool, conn net.Conn) {
	s.closeExcess(from)
	c, err := s.track(&trackedConn{Conn: conn, fromPeer: true, peer: from, framed: framed})
	if err != nil {
		return
	}
	queue := s.accepted
	if framed {
		queue = s.framed
	}
	select {
	case queue <- c:
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

// Accept implements raft.StreamLayer.
func (s *Streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// acceptFramed returns the next framed stream that a peer has opened.
func (s *Streams) acceptFramed() (*trackedConn, error) {
	select {
	case c := <-s.framed:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *Streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if fsm.MemberID(address) == s.cfg.Member { // a campaign, see instance.campaign
		ours, theirs := net.Pipe()
		s.Accepted(s.cfg.Member, false, theirs)
		return s.track(&trackedConn{Conn: ours})
	}
	ctx, cancel := s.dialContext(timeout)
	defer cancel()
	member, replica, _ := strings.Cut(string(address), replicaSeparator)
	conn, err := s.cfg.Dial(ctx, fsm.MemberID(member), s.cfg.ID, replica)
	if err != nil {
		return nil, err
	}
	return s.track(&trackedConn{Conn: conn, address: address})
}

// dialFramed opens a framed stream to a replica, within timeout. It returns nil without an error if the member knows only
// raft's own encoding. It does not ask again while a stream in that encoding is open there: the member is still the
// process that was asked before.
func (s *Streams) dialFramed(address raft.ServerAddress, timeout time.Duration) (*trackedConn, error) {
	if s.cfg.DialFramed == nil || s.isUnframed(address) {
		return nil, nil //nolint:nilnil // see above
	}
	ctx, cancel := s.dialContext(timeout)
	defer cancel()
	member, replica, _ := strings.Cut(string(address), replicaSeparator)
	conn, known, err := s.cfg.DialFramed(ctx, fsm.MemberID(member), s.cfg.ID, replica)
	if err != nil || !known {
		return nil, err
	}
	return s.track(&trackedConn{Conn: conn, address: address, framed: true})
}

// isUnframed reports whether this side has a stream in raft's own encoding open to an address.
func (s *Streams) isUnframed(address raft.ServerAddress) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if !c.fromPeer && !c.framed && c.address == address {
			return true
		}
	}
	return false
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
