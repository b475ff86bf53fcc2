package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/cluster/throttle"
	"github.com/peeklock/peeklock/fsm"
)

// The limits of the peer port.
const (
	handshakesMax  = 128   // at a time
	streamsMax     = 8192  // streams that are accepted and open, without those that groups have taken over
	raftStreamsMax = 65536 // streams that groups have taken over and that are open
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// Config configures the peer port of one member. Accepting needs Listener, Self, Cluster, Address, Raft,
// Forward and Logger; dialling needs Self, DialTimeout, Cluster, Address and Logger.
type Config struct {
	Self        fsm.MemberID
	Listener    net.Listener // closed by the Transport
	DialTimeout time.Duration
	// Dial opens a connection to the peer port of another member; nil means the dialer of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, when set, makes every stream a TLS stream; see newTLS for the fields that are used.
	TLS *tls.Config
	// Cluster returns the id of this member's cluster, "" while none is known. Address returns the host:port of
	// a member. Both are called from any goroutine.
	Cluster func() string
	Address func(fsm.MemberID) (string, error)

	// Start is that of this process. Observe records a start of another member of the cluster; an error that wraps
	// starts.ErrOld refuses its streams. It may be nil.
	Start   starts.Start
	Observe func(fsm.MemberID, starts.Start) error
	// Copied is called when another member has seen a later process of this member, or another process of it has
	// answered. It is called from the goroutine of the stream. It may be nil.
	Copied func(error)

	// Raft takes over a stream of another member for the named replica of a partition's group. With a nil connection it only
	// answers whether it would: Accepted, NoReplica or OtherReplica. Without a name it then answers for any replica.
	Raft func(from fsm.MemberID, id fsm.PartitionID, replica string, conn net.Conn) Reply
	// Forward serves a stream and returns when it has ended.
	Forward func(fsm.MemberID, net.Conn)
	// Backup takes over a stream to which it writes a backup. If it is nil, such streams are refused.
	Backup func(fsm.PartitionID, net.Conn)
	Logger *slog.Logger
}

// Stats counts streams since the start.
type Stats struct{ Dialled, Accepted, Failed, Untrusted uint64 }

type counters struct{ dialled, accepted, failed, untrusted atomic.Uint64 }

// Transport opens streams to other members and accepts theirs. It uses one TCP connection per stream: in
// measurements this is 7 to 12 % faster than multiplexing over one connection, and a slow group does not block
// the others (DESIGN.md of package cluster). All methods may be called concurrently.
type Transport struct {
	config   Config
	tls      *memberTLS   // nil: plain streams
	refusals throttle.Log // limits log lines about untrusted peers
	counts   counters

	members memberStreams // what is open to and from each member

	raftStreams    atomic.Int64 // that groups have taken over
	raftStreamsMax int64

	mu             sync.Mutex
	streams        map[net.Conn]struct{} // accepted streams that Close must close
	closed         bool
	foreignLog     time.Time     // when a foreign member was last logged
	handshakeSlots chan struct{} // one per running handshake
	done           sync.WaitGroup
}

// New returns a transport. It accepts nothing before Start.
func New(c *Config) *Transport {
	p := &Transport{
		config: *c, tls: newTLS(c.TLS),
		streams: make(map[net.Conn]struct{}), handshakeSlots: make(chan struct{}, handshakesMax),
		raftStreamsMax: raftStreamsMax,
	}
	if p.config.Dial == nil {
		p.config.Dial = new(net.Dialer).DialContext
	}
	return p
}

// Start begins to accept streams.
func (p *Transport) Start() { p.done.Go(p.acceptLoop) }

// Addr returns the address that the peer port is bound to.
func (p *Transport) Addr() net.Addr { return p.config.Listener.Addr() }

// Stats returns the number of streams since the start.
func (p *Transport) Stats() Stats {
	c := &p.counts
	return Stats{Dialled: c.dialled.Load(), Accepted: c.accepted.Load(), Failed: c.failed.Load(), Untrusted: c.untrusted.Load()}
}

func (p *Transport) acceptLoop() {
	pause := acceptPauseMin
	for {
		conn, err := p.config.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // most likely out of file descriptors
			p.config.Logger.Warn("failed to accept connection of a member", "error", err)
			if p.sleep(pause) {
				return
			}
			pause = min(2*pause, acceptPauseMax)
			continue
		}
		pause = acceptPauseMin
		select {
		case p.handshakeSlots <- struct{}{}:
		default: // too many handshakes: refuse this one at no further cost
			_ = conn.Close()
			continue
		}
		if !p.track(conn) {
			<-p.handshakeSlots
			_ = conn.Close()
			continue
		}
		p.done.Go(func() { p.acceptStream(conn) })
	}
}

// sleep waits, and then reports whether the transport is closed.
func (p *Transport) sleep(length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	<-timer.C
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// track registers a stream so that Close can end it. It returns false when there are too many
// streams or the transport is closing.
func (p *Transport) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.streams) >= streamsMax {
		return false
	}
	p.streams[conn] = struct{}{}
	return true
}

func (p *Transport) untrack(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, conn)
}

// acceptStream reads the header of one accepted stream and passes the stream to its handler.
func (p *Transport) acceptStream(raw net.Conn) {
	defer p.untrack(raw)
	conn, header, err := p.handshake(raw)
	<-p.handshakeSlots
	if err != nil {
		_ = raw.Close()
		p.logRefused(raw.RemoteAddr().String(), err)
		return
	}
	conn, ok := p.members.add(header.From, &header.Start, conn)
	if !ok {
		_ = raw.Close()
		return
	}
	p.counts.accepted.Add(1)
	if header.Kind == ForwardStream {
		p.config.Forward(header.From, conn)
		_ = conn.Close()
		return
	}
	if header.Kind == BackupStream {
		p.config.Backup(header.Partition, conn)
		return
	}
	p.handOver(&header, conn)
}

// handOver lets a group take over a stream, unless too many are open.
func (p *Transport) handOver(header *streamHeader, conn net.Conn) {
	taken := &raftStream{Conn: conn, open: &p.raftStreams}
	if p.raftStreams.Add(1) > p.raftStreamsMax ||
		p.config.Raft(header.From, header.Partition, header.Replica, taken) != Accepted { // closed since the handshake
		_ = taken.Close()
	}
}

// raftStream is a stream that a group has taken over. It is counted until it is closed.
type raftStream struct {
	net.Conn

	open   *atomic.Int64
	closed atomic.Bool
}

// Close implements net.Conn.
func (s *raftStream) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.open.Add(-1)
	}
	return s.Conn.Close()
}

// handshake performs the TLS handshake if TLS is configured, and reads, checks and answers the header of a
// stream, all within handshakeTimeout.
func (p *Transport) handshake(raw net.Conn) (net.Conn, streamHeader, error) {
	if err := raw.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, streamHeader{}, err
	}
	conn, err := p.tls.accept(raw)
	if err != nil {
		return nil, streamHeader{}, err
	}
	header, err := readStreamHeader(conn)
	var refused RefusedError
	if errors.As(err, &refused) && refused.Reply == WantsPlain {
		closeUntrusted(conn, append([]byte(streamMagic), streamVersion)) // no TLS record begins with these bytes
		return nil, header, err
	}
	var reply Reply
	switch {
	case errors.As(err, &refused):
		reply = refused.Reply
	case err != nil:
		return nil, header, err
	default:
		reply = p.checkHeader(&header)
	}
	if _, err := conn.Write(p.encodeReply(reply)); err != nil {
		return nil, header, err
	}
	if reply != Accepted {
		return nil, header, RefusedError{reply}
	}
	return conn, header, conn.SetDeadline(time.Time{})
}

// logRefused logs a refused stream: as a warning, at a limited rate, when its peer is not trusted, else at
// level DEBUG.
func (p *Transport) logRefused(from string, err error) {
	if isUntrusted(err) {
		p.counts.untrusted.Add(1)
	}
	host, _, splitErr := net.SplitHostPort(from)
	if refused := (RefusedError{}); errors.As(err, &refused) && refused.Reply == OtherDraft && p.refusals.Allow("draft of "+host, time.Now()) {
		p.config.Logger.Error("a stream of a member with another draft of the formats is refused: run the same build on all members", "from", from)
		return
	}
	if splitErr == nil && isUntrusted(err) && p.refusals.Allow("from "+host, time.Now()) {
		p.config.Logger.Warn(msgAcceptUntrusted, "from", from, "error", err)
		return
	}
	p.config.Logger.Debug("stream refused", "from", from, "error", err)
}

func (p *Transport) checkHeader(header *streamHeader) Reply {
	ours := p.config.Cluster()
	switch {
	case header.Kind < RaftStream || header.Kind > BackupStream || header.Kind == BackupStream && p.config.Backup == nil:
		return UnknownKind
	case header.To != p.config.Self:
		return OtherMember
	case header.Cluster != "" && ours != "" && header.Cluster != ours:
		p.logForeign(header, ours)
		return ForeignCluster
	case header.From == p.config.Self && header.Cluster == ours && header.Start != p.config.Start:
		p.copied(RefusedError{Twin})
		return Twin
	case p.observe(header.From, header.Cluster, &header.Start) != nil:
		return OldStart
	case header.Kind != ForwardStream:
		return p.config.Raft(header.From, header.Partition, header.Replica, nil)
	}
	return Accepted
}

// logForeign logs, at a limited rate, that a member of another cluster opens streams.
func (p *Transport) logForeign(header *streamHeader, ours string) {
	now := time.Now()
	p.mu.Lock()
	recent := now.Sub(p.foreignLog) < throttle.LogEvery
	if !recent {
		p.foreignLog = now
	}
	p.mu.Unlock()
	if !recent {
		p.config.Logger.Error("a stream from a member of another cluster is refused",
			"peer", header.From, "their_cluster", header.Cluster, "our_cluster", ours)
	}
}

// Dial opens a stream to another member, within Config.DialTimeout. The partition is used for backup streams
// only. If the other end refuses the stream, the error is a RefusedError.
func (p *Transport) Dial(ctx context.Context, kind Kind, to fsm.MemberID, id fsm.PartitionID) (net.Conn, error) {
	return p.dial(ctx, &streamHeader{Kind: kind, Partition: id, To: to})
}

// DialRaft opens a stream to the named replica of a partition at another member. It is like Dial otherwise.
func (p *Transport) DialRaft(ctx context.Context, to fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error) {
	return p.dial(ctx, &streamHeader{Kind: RaftStream, Partition: id, To: to, Replica: replica})
}

// Probe reports whether the process of a member is alive: without an error it has answered the header of a stream for
// a partition that nobody holds. An error that wraps ECONNREFUSED means that the process has ended.
func (p *Transport) Probe(ctx context.Context, member fsm.MemberID) error {
	conn, err := p.DialRaft(ctx, member, ^fsm.PartitionID(0), "")
	if refused := (RefusedError{}); errors.As(err, &refused) && refused.Reply == NoReplica {
		return nil
	}
	if err == nil {
		err = conn.Close()
	}
	return err
}

func (p *Transport) dial(ctx context.Context, header *streamHeader) (net.Conn, error) {
	to := header.To
	address, err := p.config.Address(to)
	if err != nil {
		return nil, err
	}
	return p.dialAt(ctx, header, address)
}

// FindTwin reports whether another process with the identity of this member answers at an address.
func (p *Transport) FindTwin(ctx context.Context, address string) bool {
	conn, err := p.dialAt(ctx, &streamHeader{Kind: ForwardStream, To: p.config.Self}, address)
	if err == nil {
		_ = conn.Close()
	}
	refused := RefusedError{}
	return errors.As(err, &refused) && refused.Reply == Twin
}

func (p *Transport) dialAt(ctx context.Context, header *streamHeader, address string) (net.Conn, error) {
	to := header.To
	ctx, cancel := context.WithTimeout(ctx, p.config.DialTimeout)
	defer cancel()
	raw, err := p.config.Dial(ctx, "tcp", address)
	if err != nil {
		p.counts.failed.Add(1)
		return nil, fmt.Errorf("reach member %s: %w", to, err)
	}
	conn, err := p.tls.dial(ctx, raw)
	if err == nil {
		header.From, header.Cluster, header.Start = p.config.Self, p.config.Cluster(), p.config.Start
		err = p.sendHeader(ctx, &conn, header)
	}
	if refused := (RefusedError{}); errors.As(err, &refused) && (refused.Reply == OldStart || refused.Reply == Twin) {
		p.copied(fmt.Errorf("member %s at %s: %w", to, address, refused))
	}
	if err != nil {
		_ = raw.Close()
		p.counts.failed.Add(1)
		if isUntrusted(err) {
			p.counts.untrusted.Add(1)
		}
		if isUntrusted(err) && p.refusals.Allow("to "+string(to), time.Now()) {
			p.config.Logger.WarnContext(ctx, msgDialUntrusted, "peer", to, "address", address, "error", err)
		}
		return nil, fmt.Errorf("reach member %s at %s: %w", to, address, err)
	}
	p.counts.dialled.Add(1)
	return conn, nil
}

// sendHeader sends the header and waits for the reply. It replaces the connection by one that is closed when a later process of
// the other member is seen.
func (p *Transport) sendHeader(ctx context.Context, to *net.Conn, header *streamHeader) error {
	conn := *to
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(header.encode()); err != nil {
		return err
	}
	start, err := readReply(conn)
	if err == nil && header.To != p.config.Self {
		err = p.observe(header.To, header.Cluster, &start)
	}
	if err != nil {
		return err
	}
	if !stop() { // the deadline fired while the reply arrived
		return ctx.Err()
	}
	var ok bool
	if *to, ok = p.members.add(header.To, &start, conn); !ok {
		return starts.ErrOld
	}
	return nil
}

// Close stops accepting, closes the accepted forward streams and waits until they have ended. Streams that were
// passed to groups end with their groups.
func (p *Transport) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.done.Wait()
		return
	}
	p.closed = true
	_ = p.config.Listener.Close()
	for conn := range p.streams {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}
