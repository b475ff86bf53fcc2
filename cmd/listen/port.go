package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/connlimit"
)

// Limits of pending connections, whose protocol is not known yet. Each costs a goroutine, 1 KiB of first bytes,
// and about 30 KiB more during a TLS handshake.
const (
	pendingMaxDefault     = 1000
	pendingTimeoutDefault = 10 * time.Second // the gateway waits as long for an open frame
	refusalTimeMax        = time.Second      // time for the peer to read the refusal
	refusalBytesMax       = 64 * 1024        // read from the peer after the refusal
)

// Config configures a Port. Start from DefaultConfig.
type Config struct {
	// Listeners accept clients; each of them accepts every protocol. The Port closes them.
	Listeners []net.Listener
	// TLS is the TLS configuration; nil refuses TLS. ALPN is not offered: the servers do not support HTTP/2, and
	// AMQP clients name no protocol.
	TLS *tls.Config
	// RequireTLS refuses clients without TLS.
	RequireTLS bool
	// TrustLoopback waives RequireTLS for peers on a loopback address, and requires that their WebSockets name a loopback
	// host. It does not apply to connections with a PROXY protocol header, whatever address the header has.
	TrustLoopback bool
	// ProxyFrom are the networks of proxies that begin each connection with a PROXY protocol header, version 1 or 2.
	// Connections from there without a header are refused, and so are connections from elsewhere with one.
	ProxyFrom []netip.Prefix
	// Origins are hosts whose web pages may open a WebSocket, in the patterns of path.Match with an optional
	// scheme. Pages of the host itself always may. Clients other than browsers send no origin.
	Origins []string
	Logger  *slog.Logger

	PendingMax     int           // connections at the same time whose protocol is not known yet
	PendingTimeout time.Duration // from accept until delivery to a server
}

// DefaultConfig returns a Config with default limits. The caller sets the Listeners.
func DefaultConfig() Config {
	return Config{
		Logger:         slog.New(slog.DiscardHandler),
		PendingMax:     pendingMaxDefault,
		PendingTimeout: pendingTimeoutDefault,
	}
}

// Validate returns an error that names what is missing or out of range.
func (c Config) Validate() error {
	switch {
	case len(c.Listeners) == 0:
		return errors.New("port has no listener")
	case c.Logger == nil:
		return errors.New("port has no logger")
	case c.RequireTLS && c.TLS == nil:
		return errors.New("port requires tls and has no certificate")
	case c.PendingMax < 1:
		return fmt.Errorf("pending max %d is below 1", c.PendingMax)
	case c.PendingTimeout <= 0:
		return fmt.Errorf("pending timeout %s is not positive", c.PendingTimeout)
	}
	return nil
}

// Port accepts connections and delivers each one to the server of its protocol. It is safe for concurrent use.
type Port struct {
	config Config
	stop   context.CancelFunc
	group  sync.WaitGroup // accept loops and pending connections
	amqp   *protocolListener
	http   *protocolListener

	limiter *connlimit.Limiter // of pending connections

	mu          sync.Mutex
	closed      bool
	lastWarning time.Time // time of the last warning of logRefused
}

// pendingConn is a connection that no server has accepted yet.
type pendingConn struct {
	port    *Port
	raw     net.Conn // as accepted
	peer    net.Addr // for logs: the address of raw, or the one in a PROXY header
	conn    net.Conn // the connection for the server: raw, TLS or WebSocket, with all bytes still to be read
	counted *connlimit.Conn
	// proxied reports whether a PROXY header was read.
	proxied bool
}

// Open starts to accept. It uses ctx for values only: the Port runs until Close. If Open fails, the caller still
// owns the listeners.
func Open(ctx context.Context, config Config) (*Port, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("open port: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &Port{config: config, stop: stop, limiter: connlimit.New(config.PendingMax, 0)}
	addr := config.Listeners[0].Addr()
	p.amqp, p.http = newProtocolListener(addr), newProtocolListener(addr)
	for _, l := range config.Listeners {
		p.group.Go(func() { p.accept(ctx, l) })
	}
	return p, nil
}

// AMQP returns the listener for the connections of AMQP clients, over any transport. Closing it closes later
// connections of that protocol, and nothing else.
func (p *Port) AMQP() net.Listener { return p.amqp }

// HTTP returns the listener for the connections of HTTP clients; see AMQP.
func (p *Port) HTTP() net.Listener { return p.http }

// Pending returns the number of connections that have not been delivered.
func (p *Port) Pending() int { return p.limiter.Len() }

// Close stops accepting, closes pending connections and waits for all goroutines. Delivered connections stay open.
// It may be called more than once.
func (p *Port) Close(ctx context.Context) error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	p.limiter.EvictAll()
	var errs []error
	if first {
		p.stop()
		for _, l := range p.config.Listeners {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, fmt.Errorf("close port: %w", err))
			}
		}
		_, _ = p.amqp.Close(), p.http.Close()
	}
	gone := make(chan struct{})
	go func() { p.group.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("close port: %w", ctx.Err()))
	}
	return errors.Join(errs...)
}

// accept accepts connections until the listener is closed.
func (p *Port) accept(ctx context.Context, l net.Listener) {
	for pause := time.Duration(0); ; {
		raw, err := l.Accept()
		if err == nil {
			pause = 0
			if s := p.register(ctx, raw); s != nil {
				p.group.Go(func() { p.handle(ctx, s) })
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		// An error such as too many open files is temporary, but immediate retries do not help.
		pause = min(time.Second, max(10*time.Millisecond, 2*pause))
		p.config.Logger.WarnContext(ctx, "failed to accept client connection", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// register registers a pending connection. If there are too many, it closes the oldest one of the address that has
// the most: a well-behaved client sends its first bytes at once.
func (p *Port) register(ctx context.Context, raw net.Conn) *pendingConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := &pendingConn{port: p, raw: raw, peer: raw.RemoteAddr()}, net.ErrClosed
	if !p.closed {
		s.counted, err = p.limiter.Add(raw.RemoteAddr(), func() {
			_ = raw.Close()
			p.config.Logger.DebugContext(ctx, "pending connection closed", "peer", raw.RemoteAddr(), "max", p.config.PendingMax)
		})
	}
	if err != nil {
		_ = raw.Close()
		return nil
	}
	return s
}

// handle detects the protocol of a pending connection and delivers it, or closes it.
func (p *Port) handle(ctx context.Context, s *pendingConn) {
	ctx, cancel := context.WithTimeout(ctx, p.config.PendingTimeout)
	defer cancel()
	_ = s.raw.SetDeadline(time.Now().Add(p.config.PendingTimeout))
	to, err := p.identify(ctx, s)
	if err == nil {
		_ = s.raw.SetDeadline(time.Time{})
		err = to.deliver(ctx, s)
	}
	if err == nil {
		return
	}
	s.counted.Remove()
	_ = s.raw.Close()
	p.logRefused(ctx, s, err)
}

var (
	errNoTLS        = errors.New("client used TLS, and no certificate is configured")
	errTLSInTLS     = errors.New("client started TLS inside TLS")
	errTLSRequired  = errors.New("client did not use TLS, which is required")
	errServerClosed = errors.New("the server of that protocol is closed")
)

// identify reads the first bytes, unwraps PROXY header, TLS and WebSocket, stores the connection inside them in
// s.conn, and returns the listener of its protocol.
func (p *Port) identify(ctx context.Context, s *pendingConn) (*protocolListener, error) {
	from, err := p.unwrap(s)
	if err != nil {
		return nil, err
	}
	kind, conn, err := peekProtocol(from)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == protocolTLS && p.config.TLS == nil:
		refuse(s.raw, protocolTLS)
		return nil, errNoTLS
	case kind == protocolTLS:
		secure := tls.Server(conn, p.config.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("tls handshake: %w", err)
		}
		if kind, conn, err = peekProtocol(secure); err != nil {
			return nil, err
		}
		if kind == protocolTLS {
			return nil, errTLSInTLS
		}
	case p.config.RequireTLS && kind != protocolProxy && !p.isTrusted(s):
		refuse(s.raw, kind)
		return nil, errTLSRequired
	}
	conn.proxied = s.proxied
	s.conn = conn
	switch kind {
	case protocolProxy:
		return nil, errProxyUntrusted
	case protocolHTTP:
		return p.http, nil
	case protocolWebSocket:
		if s.conn, err = upgrade(ctx, conn, p.config.Origins, p.isTrusted(s)); err != nil {
			drainBeforeClose(conn)
		}
		return p.amqp, err
	case protocolUnknown, protocolAMQP, protocolTLS:
	}
	return p.amqp, nil
}

// refuse tells the client in its own protocol why it is refused. Otherwise users would see only that the
// connection was closed.
func refuse(raw net.Conn, kind protocol) {
	var b []byte
	switch kind {
	case protocolTLS:
		b = []byte{0x15, 3, 3, 0, 2, 2, 40} // alert: fatal, handshake_failure (RFC 8446, 6)
	case protocolHTTP, protocolWebSocket:
		b = []byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nUse TLS (https or wss): plain connections are refused.\n")
	case protocolUnknown, protocolAMQP, protocolProxy:
		b = []byte("AMQP\x02\x01\x00\x00") // the TLS protocol header (part 5, 5.2.1), which we expect
	}
	_ = raw.SetWriteDeadline(time.Now().Add(refusalTimeMax))
	_, _ = raw.Write(b)
	drainBeforeClose(raw)
}

// drainBeforeClose ends our direction and briefly reads what still arrives: closing a socket with unread bytes
// would discard the refusal on its way to the client.
func drainBeforeClose(conn net.Conn) {
	if u, ok := conn.(*peekedConn); ok {
		conn = u.Conn
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(refusalTimeMax))
	_, _ = io.CopyN(io.Discard, conn, refusalBytesMax)
}

// isTrusted reports whether a peer is trusted because it is on this machine: it may connect without TLS although TLS is
// required.
func (p *Port) isTrusted(s *pendingConn) bool {
	return p.config.TrustLoopback && !s.proxied && onLoopback(s.raw.RemoteAddr())
}

// onLoopback reports whether the peer is on this machine.
func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// fromProxy reports whether a peer must send a PROXY header.
func (p *Port) fromProxy(peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return false
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.config.ProxyFrom, func(n netip.Prefix) bool { return n.Contains(address) })
}

// unwrap reads the PROXY header of a connection if one is required, and otherwise returns the connection as it is.
func (p *Port) unwrap(s *pendingConn) (net.Conn, error) {
	if !p.fromProxy(s.raw.RemoteAddr()) {
		return s.raw, nil
	}
	conn, err := readProxy(s.raw)
	if err != nil {
		return nil, err
	}
	s.proxied, s.peer = true, conn.client
	s.counted.SetSource(s.peer)
	return conn, nil
}

// logRefused logs why a connection ended before it was delivered to a server: as a warning, at most once per
// proxyWarnEvery, if a setting here or on the balancer is wrong, otherwise at level DEBUG.
func (p *Port) logRefused(ctx context.Context, s *pendingConn, err error) {
	wrong := errors.Is(err, errProxyMissing) || errors.Is(err, errProxyTooLong) || errors.Is(err, errProxyMalformed) || errors.Is(err, errProxyUntrusted)
	level := slog.LevelDebug
	if wrong && p.shouldWarn() {
		level = slog.LevelWarn
	}
	p.config.Logger.Log(ctx, level, "connection refused", "peer", s.peer, "error", err)
}

func (p *Port) shouldWarn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.lastWarning) < proxyWarnEvery {
		return false
	}
	p.lastWarning = now
	return true
}
