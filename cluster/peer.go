package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/throttle"
	"github.com/peeklock/peeklock/fsm"
)

// The limits of the peer port.
const (
	handshakeWaitMax   = 5 * time.Second // for a stranger to say who it is
	handshakesMax      = 128             // strangers at a time
	streamsMax         = 8192            // streams accepted and open
	memberIDBytesMax   = 64
	clusterIDBytesMax  = 64
	acceptPauseMin     = 5 * time.Millisecond
	acceptPauseMax     = time.Second
	streamHeaderBytes  = 10 // magic, version, kind, partition
	streamMagic        = "PLKP"
	streamVersion      = 1
	streamIdentityText = 3 // texts behind the fixed part
)

// streamKind says what a stream is for.
type streamKind byte

// The kinds of streams.
const (
	streamRaft    streamKind = 1 // raft's own, for one partition
	streamForward streamKind = 2 // frames of forward.go
	streamBackup  streamKind = 3 // a backup of one partition, towards who dialled
)

// streamReply is the one byte that answers a header.
type streamReply byte

// The replies.
const (
	streamOK          streamReply = 1
	streamNotMe       streamReply = 2 // the address belongs to another member now
	streamForeign     streamReply = 3 // another cluster
	streamNoReplica   streamReply = 4 // no replica of that partition is open here
	streamBusy        streamReply = 5
	streamUnreadable  streamReply = 6
	streamUnknownKind streamReply = 7
	streamWantsTLS    streamReply = 8 // a plain stream came where TLS is spoken
	streamWantsPlain  streamReply = 9 // the other way round; never sent, TLS would not understand it
)

// String is the reply as people read it.
func (r streamReply) String() string {
	switch r {
	case streamOK:
		return "accepted"
	case streamNotMe:
		return "the address belongs to another member"
	case streamForeign:
		return "the member belongs to another cluster"
	case streamNoReplica:
		return "no replica of the partition is open there"
	case streamBusy:
		return "too many streams"
	case streamUnreadable:
		return "the header was not understood"
	case streamUnknownKind:
		return "the kind of stream was not understood"
	case streamWantsTLS:
		return "the member takes streams in TLS only: give this one a certificate too"
	case streamWantsPlain:
		return "the member speaks TLS and this one does not: give both certificates, or neither"
	}
	return fmt.Sprintf("reply %d", byte(r))
}

// streamError is a reply other than streamOK.
type streamError struct{ reply streamReply }

func (e streamError) Error() string { return e.reply.String() }

// streamHeader opens every stream between members.
type streamHeader struct {
	Kind      streamKind
	Partition fsm.PartitionID // raft only
	To, From  fsm.MemberID
	Cluster   string // cluster id, empty while none is known
}

// appendTo encodes the header: magic, version, kind, partition, then to, from and
// cluster, each behind one byte of length.
func (h *streamHeader) appendTo(dst []byte) []byte {
	dst = append(dst, streamMagic...)
	dst = append(dst, streamVersion, byte(h.Kind))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Partition))
	for _, text := range []string{string(h.To), string(h.From), h.Cluster} {
		dst = append(dst, byte(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// readStreamHeader reads a header and never a byte more, so that what follows is left
// to the owner of the stream. It allocates at most a few hundred bytes.
func readStreamHeader(r io.Reader) (h streamHeader, err error) {
	var fixed [streamHeaderBytes]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return h, err
	}
	if isTLSHello(fixed[:]) {
		return h, streamError{streamWantsPlain}
	}
	if !isPeerMagic(fixed[:]) {
		return h, streamError{streamUnreadable}
	}
	h.Kind = streamKind(fixed[5])
	h.Partition = fsm.PartitionID(binary.BigEndian.Uint32(fixed[6:]))
	var texts [streamIdentityText]string
	for i, limit := range [streamIdentityText]byte{memberIDBytesMax, memberIDBytesMax, clusterIDBytesMax} {
		var size [1]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return h, err
		}
		if size[0] > limit {
			return h, streamError{streamUnreadable}
		}
		text := make([]byte, size[0])
		if _, err := io.ReadFull(r, text); err != nil {
			return h, err
		}
		texts[i] = string(text)
	}
	h.To, h.From, h.Cluster = fsm.MemberID(texts[0]), fsm.MemberID(texts[1]), texts[2]
	return h, nil
}

// peers opens streams to other members and takes theirs. There is one TCP connection
// per stream: measured against multiplexing over one connection this is 7 to 12 % faster,
// and a slow group does not hold up the others (DESIGN.md).
type peers struct {
	self     fsm.MemberID
	listener net.Listener
	log      *slog.Logger
	dialMax  time.Duration
	secure   *secure      // nil: plain streams
	refusals throttle.Log // log lines about peers that are not trusted
	counts   peerCounts
	cluster  func() string
	address  func(fsm.MemberID) (string, error)
	// raft hands a stream to the group of the partition; false: it is not open here.
	raft func(fsm.PartitionID, net.Conn) bool
	// forward serves a stream and returns when it has ended.
	forward func(fsm.MemberID, net.Conn)
	// backup writes a backup and returns when the stream has ended; nil: there are none.
	backup func(fsm.PartitionID, net.Conn)

	mu         sync.Mutex
	streams    map[net.Conn]struct{} // accepted, and still ours to close
	closed     bool
	foreignLog time.Time     // when a foreign member was last logged
	places     chan struct{} // one per handshake
	done       sync.WaitGroup
}

// start begins to accept.
func (p *peers) start() {
	p.streams = make(map[net.Conn]struct{})
	p.places = make(chan struct{}, handshakesMax)
	p.done.Go(p.acceptLoop)
}

func (p *peers) acceptLoop() {
	pause := acceptPauseMin
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely
			p.log.Warn("accept on the peer port", "error", err)
			if p.pause(pause) {
				return
			}
			pause = min(2*pause, acceptPauseMax)
			continue
		}
		pause = acceptPauseMin
		select {
		case p.places <- struct{}{}:
		default: // too many strangers: this one costs us no more than a close
			_ = conn.Close()
			continue
		}
		if !p.track(conn) {
			<-p.places
			_ = conn.Close()
			continue
		}
		p.done.Go(func() { p.welcome(conn) })
	}
}

// pause waits and says whether the port has been closed meanwhile.
func (p *peers) pause(length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	<-timer.C
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// track remembers a stream so that close can end it; false: no room, or closing.
func (p *peers) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.streams) >= streamsMax {
		return false
	}
	p.streams[conn] = struct{}{}
	return true
}

func (p *peers) untrack(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, conn)
}

// welcome reads the header of one accepted stream and hands the stream on.
func (p *peers) welcome(raw net.Conn) {
	defer p.untrack(raw)
	conn, header, err := p.handshake(raw)
	<-p.places
	if err != nil {
		_ = raw.Close()
		p.logRefused(raw.RemoteAddr().String(), err)
		return
	}
	p.counts.accepted.Add(1)
	if header.Kind == streamForward {
		p.forward(header.From, conn)
		_ = conn.Close()
		return
	}
	if header.Kind == streamBackup {
		p.backup(header.Partition, conn)
		return
	}
	if !p.raft(header.Partition, conn) { // closed since the handshake
		_ = conn.Close()
	}
}

// handshake makes the stream a TLS stream where that is wanted, and reads, judges and
// answers its header, all within a bounded time.
func (p *peers) handshake(raw net.Conn) (net.Conn, streamHeader, error) {
	if err := raw.SetDeadline(time.Now().Add(handshakeWaitMax)); err != nil {
		return nil, streamHeader{}, err
	}
	conn, err := p.secure.accept(raw)
	if err != nil {
		return nil, streamHeader{}, err
	}
	header, err := readStreamHeader(conn)
	var refused streamError
	if errors.As(err, &refused) && refused.reply == streamWantsPlain {
		part(conn, append([]byte(streamMagic), streamVersion)) // what no TLS begins with
		return nil, header, err
	}
	reply := p.judge(&header)
	switch {
	case errors.As(err, &refused):
		reply = refused.reply
	case err != nil:
		return nil, header, err
	}
	if _, err := conn.Write([]byte{byte(reply)}); err != nil {
		return nil, header, err
	}
	if reply != streamOK {
		return nil, header, streamError{reply}
	}
	return conn, header, conn.SetDeadline(time.Time{})
}

// logRefused tells of a stream that was not taken: loudly, now and then, when its peer is
// not trusted.
func (p *peers) logRefused(from string, err error) {
	if distrusted(err) {
		p.counts.untrusted.Add(1)
	}
	host, _, splitErr := net.SplitHostPort(from)
	if splitErr == nil && distrusted(err) && p.refusals.Allow("from "+host, time.Now()) {
		p.log.Warn(textNoTrustAccept, "from", from, "error", err)
		return
	}
	p.log.Debug("stream refused", "from", from, "error", err)
}

func (p *peers) judge(header *streamHeader) streamReply {
	ours := p.cluster()
	switch {
	case header.Kind != streamRaft && header.Kind != streamForward && (header.Kind != streamBackup || p.backup == nil):
		return streamUnknownKind
	case header.To != p.self:
		return streamNotMe
	case header.Cluster != "" && ours != "" && header.Cluster != ours:
		p.logForeign(header, ours)
		return streamForeign
	case header.Kind != streamForward && !p.raft(header.Partition, nil):
		return streamNoReplica
	}
	return streamOK
}

// logForeign says now and then that a member of another cluster knocks.
func (p *peers) logForeign(header *streamHeader, ours string) {
	now := time.Now()
	p.mu.Lock()
	quiet := now.Sub(p.foreignLog) < throttle.LogEvery
	if !quiet {
		p.foreignLog = now
	}
	p.mu.Unlock()
	if !quiet {
		p.log.Error("a stream from a member of another cluster is refused",
			"peer", header.From, "their_cluster", header.Cluster, "our_cluster", ours)
	}
}

// dial opens a stream to another member.
func (p *peers) dial(ctx context.Context, kind streamKind, to fsm.MemberID, id fsm.PartitionID) (net.Conn, error) {
	address, err := p.address(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.dialMax)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		p.counts.failed.Add(1)
		return nil, fmt.Errorf("reach member %s: %w", to, err)
	}
	conn, err := p.secure.dial(ctx, raw)
	if err == nil {
		header := streamHeader{Kind: kind, Partition: id, To: to, From: p.self, Cluster: p.cluster()}
		err = p.introduce(ctx, conn, &header)
	}
	if err != nil {
		_ = raw.Close()
		p.counts.failed.Add(1)
		if distrusted(err) {
			p.counts.untrusted.Add(1)
		}
		if distrusted(err) && p.refusals.Allow("to "+string(to), time.Now()) {
			p.log.WarnContext(ctx, textNoTrust, "peer", to, "address", address, "error", err)
		}
		return nil, fmt.Errorf("reach member %s at %s: %w", to, address, err)
	}
	p.counts.dialled.Add(1)
	return conn, nil
}

// introduce sends the header and waits for the reply.
func (p *peers) introduce(ctx context.Context, conn net.Conn, header *streamHeader) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(header.appendTo(nil)); err != nil {
		return err
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err // in TLS 1.3 this is where a member that refuses our certificate says so
	}
	if streamReply(reply[0]) != streamOK {
		return streamError{streamReply(reply[0])}
	}
	if !stop() { // the deadline fired while the reply came in
		return ctx.Err()
	}
	return nil
}

// close stops accepting, ends the accepted forward streams and waits. Streams that
// were handed to groups end with their groups.
func (p *peers) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.done.Wait()
		return
	}
	p.closed = true
	_ = p.listener.Close()
	for conn := range p.streams {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}
