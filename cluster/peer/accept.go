package peer

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/throttle"
)

// The limits of the peer port.
const (
	handshakesMax = 128 // at a time
	// unknownHandshakesMax is how many of them come from addresses at which gossip knows no member.
	unknownHandshakesMax = 64
	streamsMax           = 8192  // streams that are accepted and open, without those that groups have taken over
	raftStreamsMax       = 65536 // streams that groups have taken over and that are open
	acceptPauseMin       = 5 * time.Millisecond
	acceptPauseMax       = time.Second
)

// New returns a transport. It accepts nothing before Start.
func New(c *Config) *Transport {
	p := &Transport{
		config: *c, tls: newTLS(c.TLS, c.Authorities),
		streams: make(map[net.Conn]struct{}), handshakes: places{known: c.Known},
		raftStreamsMax: raftStreamsMax,
	}
	if p.config.Dial == nil {
		p.config.Dial = new(net.Dialer).DialContext
	}
	return p
}

// Start begins to accept streams.
func (p *Transport) Start() { p.done.Go(p.acceptLoop) }

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
		place, ok := p.handshakes.add(conn)
		if !ok { // too many handshakes: refuse this one at no further cost
			_ = conn.Close()
			continue
		}
		if !p.track(conn) {
			p.handshakes.remove(place)
			_ = conn.Close()
			continue
		}
		p.done.Go(func() { p.acceptStream(conn, place) })
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
func (p *Transport) acceptStream(raw net.Conn, place *placed) {
	defer p.untrack(raw)
	conn, header, err := p.handshake(raw, place)
	if !p.handshakes.remove(place) && err == nil {
		err = net.ErrClosed
	}
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

// handshake performs the TLS handshake if TLS is configured, and reads, checks and answers the header of a
// stream, all within handshakeTimeout. A peer that sends nothing has silentTimeout.
func (p *Transport) handshake(raw net.Conn, place *placed) (net.Conn, streamHeader, error) {
	conn, err := awaitStart(raw)
	if err != nil {
		return nil, streamHeader{}, err
	}
	p.handshakes.start(place)
	if err := raw.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, streamHeader{}, err
	}
	conn, err = p.tls.accept(conn)
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
