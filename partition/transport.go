package partition

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

const (
	acceptedWaitingMax   = 16 // raft streams accepted and not yet taken by the transport
	idleStreamsPerPeer   = 3  // kept open for the next request
	requestsInFlight     = 2  // AppendEntries on one stream; more was measured as worse
	streamRequestTimeout = 10 * time.Second
)

// safeTransport is raft's transport without its heartbeat fast path. On that path
// heartbeats change term and state beside the main goroutine, and a leader that comes
// back from a pause can then write a client's command with the term of its successor:
// replicas diverge. Without it heartbeats take the same way as all else.
type safeTransport struct{ *raft.NetworkTransport }

// SetHeartbeatHandler leaves the fast path off.
func (safeTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline opens a pipeline that ends with the first answer raft will not
// read on after (raft 1.7.3, pipelineDecode).
func (t safeTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture), ended: make(chan struct{})}
	go p.relay()
	return p, nil
}

// pipeline is raft's, without its way to get stuck. Raft reads no more answers after one
// that says no, and may yet send: then the transport waits for a reader of the next
// answer, and the sender for the transport, for ever. That replica gets no entries any
// more while its leader leads, for heartbeats go another way, and the raft instance
// cannot be shut down. Here the pipeline is closed behind such an answer, which is what
// raft itself does next, and whoever sends gets an error.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	ended   chan struct{}
	once    sync.Once
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.ended) })
	return p.AppendPipeline.Close()
}

// relay hands the answers on.
func (p *pipeline) relay() {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			// Raft owns the answer once it has it. A request that failed has an empty one.
			last := !f.Response().Success || f.Response().Term > f.Request().Term
			select {
			case p.answers <- f:
			case <-p.ended:
				return
			}
			if last {
				_ = p.Close()
				return
			}
		case <-p.ended:
			return
		}
	}
}

// streams is the raft.StreamLayer of one raft instance: it dials through Config.Dial
// and accepts what Group.Accept is given. The raft address of a replica is the id of
// its member, so a member may change its network address at any time. It knows all its
// streams, so that closing it frees every goroutine that reads from one.
type streams struct {
	id     fsm.PartitionID
	member fsm.MemberID
	dial   func(context.Context, fsm.MemberID, fsm.PartitionID) (net.Conn, error)

	accepted chan net.Conn
	ended    chan struct{} // closed with the instance

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

func newStreams(cfg *Config) *streams {
	return &streams{
		id: cfg.ID, member: cfg.Member, dial: cfg.Dial,
		accepted: make(chan net.Conn, acceptedWaitingMax),
		ended:    make(chan struct{}),
		open:     make(map[*trackedConn]struct{}),
	}
}

// trackedConn takes itself off the list when it is closed.
type trackedConn struct {
	net.Conn
	owner *streams
}

func (c *trackedConn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// track puts a stream on the list; a closed layer closes it at once.
func (s *streams) track(conn net.Conn) (net.Conn, error) {
	c := &trackedConn{Conn: conn, owner: s}
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

// offer queues a stream that the peer opened; when too many wait it is closed, and the
// peer tries again.
func (s *streams) offer(conn net.Conn) {
	c, err := s.track(conn)
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
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.ended:
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() {
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := s.dial(ctx, fsm.MemberID(address), s.id)
	if err != nil {
		return nil, err
	}
	return s.track(conn)
}

// Close implements raft.StreamLayer: it closes every stream.
func (s *streams) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.ended)
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
func (s *streams) Addr() net.Addr { return memberAddr(s.member) }

// memberAddr is a member id as a net.Addr.
type memberAddr fsm.MemberID

func (memberAddr) Network() string  { return "member" }
func (a memberAddr) String() string { return string(a) }
