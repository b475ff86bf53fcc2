package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// port is a peer port that serves forward streams by reading them, and counts them.
type port struct {
	*Transport
	lines   *kit.LogLines
	streams atomic.Int32
}

func newPort(t testing.TB, self fsm.MemberID, config *tls.Config, to *port) *port {
	t.Helper()
	return newTrustingPort(t, self, config, nil, to)
}

// newTrustingPort is newPort with authorities that may change.
func newTrustingPort(t testing.TB, self fsm.MemberID, config *tls.Config, authorities func() *x509.CertPool, to *port) *port {
	t.Helper()
	listener := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	return newPortOn(t, listener, nil, self, config, authorities, to)
}

// newPortOn is newTrustingPort on a listener and with a dialer; nil means the dialer of package net.
func newPortOn(
	t testing.TB, listener net.Listener, dial func(ctx context.Context, network, address string) (net.Conn, error),
	self fsm.MemberID, config *tls.Config, authorities func() *x509.CertPool, to *port,
) *port {
	t.Helper()
	p := &port{lines: new(kit.LogLines)}
	p.Transport = New(&Config{
		Self: self, Listener: listener, Dial: dial, DialTimeout: kit.WaitMax, TLS: config, Authorities: authorities,
		Cluster: func() string { return "" },
		Address: func(fsm.MemberID) (string, error) { return to.Addr().String(), nil },
		Raft:    func(fsm.MemberID, fsm.PartitionID, string, net.Conn) Reply { return NoReplica },
		Forward: func(_ fsm.MemberID, conn net.Conn) {
			p.streams.Add(1)
			_, _ = io.Copy(conn, conn)
		},
		Logger: p.lines.Logger(),
	})
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// TestOnlyTrustedPeersOpenStreams checks which peers may open a stream to which. A refused peer learns the reason, and both ends
// log it.
func TestOnlyTrustedPeersOpenStreams(t *testing.T) {
	t.Parallel()
	ours, theirs := kit.NewAuthority(t), kit.NewAuthority(t)
	with := func(a *kit.Authority, c *tls.Certificate) *tls.Config {
		current := new(atomic.Pointer[tls.Certificate])
		current.Store(c)
		return a.TLSConfig(current)
	}
	usage := func(usages ...x509.ExtKeyUsage) *tls.Config {
		return with(ours, ours.Issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = usages }))
	}
	late := with(ours, ours.Issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
	for name, c := range map[string]struct {
		from, to       *tls.Config
		dialer, server string // texts in the logs; empty: the stream is accepted
	}{
		"plain":                       {nil, nil, "", ""},
		"tls":                         {ours.MemberTLSConfig(t), ours.MemberTLSConfig(t), "", ""},
		"no usages":                   {usage(), usage(), "", ""},
		"plain to tls":                {nil, ours.MemberTLSConfig(t), "accepts TLS streams only", "does not use TLS"},
		"tls to plain":                {ours.MemberTLSConfig(t), nil, "does not use TLS", "uses TLS and"},
		"another authority":           {theirs.MemberTLSConfig(t), ours.MemberTLSConfig(t), "unknown authority", "bad certificate"},
		"trusts us, foreign itself":   {with(ours, theirs.Issue(t, nil)), ours.MemberTLSConfig(t), "unknown certificate authority", "unknown authority"},
		"no certificate":              {with(ours, nil), ours.MemberTLSConfig(t), "certificate required", "provide a certificate"},
		"expired":                     {late, ours.MemberTLSConfig(t), "expired", "expired"},
		"we are expired":              {ours.MemberTLSConfig(t), late, "expired", "bad certificate"},
		"a client's certificate":      {usage(x509.ExtKeyUsageClientAuth), ours.MemberTLSConfig(t), "bad certificate", "incompatible key usage"},
		"a server's certificate only": {ours.MemberTLSConfig(t), usage(x509.ExtKeyUsageServerAuth), "incompatible key usage", "bad certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newPort(t, "B", c.to, nil)
			dialer := newPort(t, "A", c.from, server)
			for range 2 { // refused twice, logged once
				conn, err := dialer.Dial(t.Context(), ForwardStream, "B", 0)
				if (err == nil) != (c.dialer == "") {
					t.Fatalf("dial: %v", err)
				}
				if err != nil {
					continue
				}
				kit.Must(conn.Write([]byte("hello")))(t)
				got := make([]byte, 5)
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
					t.Fatalf("read %q, %v", got, err)
				}
				_ = conn.Close()
			}
			if c.dialer == "" {
				return
			}
			kit.Eventually(t, "a line at the server", func() bool { return server.lines.Has(msgAcceptUntrusted, c.server) })
			if !dialer.lines.Has(msgDialUntrusted, c.dialer, "peer=B") {
				t.Errorf("the dialer said %s", dialer.lines.String())
			}
			server.Close()
			if n := server.streams.Load(); n != 0 {
				t.Errorf("%d streams were served", n)
			}
			if a, b := dialer.lines.Count("WARN"), server.lines.Count("WARN"); a != 1 || b != 1 {
				t.Errorf("%d lines at the dialer and %d at the server, want 1 and 1", a, b)
			}
		})
	}
}

// TestSecureHandshakeIsBounded checks that a silent peer occupies a handshake only until its timeout, at either
// end, and that a broken connection is not reported as untrusted.
func TestSecureHandshakeIsBounded(t *testing.T) {
	t.Parallel()
	silent := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	ours := kit.NewAuthority(t)
	server := newPort(t, "B", ours.MemberTLSConfig(t), nil)
	dialer := newPort(t, "A", ours.MemberTLSConfig(t), server)
	dialer.config.Address = func(fsm.MemberID) (string, error) { return silent.Addr().String(), nil }
	dialer.config.DialTimeout = 50 * time.Millisecond
	if _, err := dialer.Dial(t.Context(), ForwardStream, "B", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v", err)
	}
	conn := kit.Must(net.Dial("tcp", server.Addr().String()))(t)
	defer conn.Close()
	kit.OK(t, conn.SetReadDeadline(time.Now().Add(4*handshakeTimeout)))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the silent stream: %v", err)
	}
	if dialer.lines.Has("WARN") || server.lines.Has("WARN") {
		t.Error("a silent peer is said to be foreign")
	}
}

// TestTLSDialDistinguishesDeadFromUntrustedPeers checks that a process that has ended is distinguished from one that is not
// trusted: the first lets a follower campaign at once (partition, campaign.go).
func TestTLSDialDistinguishesDeadFromUntrustedPeers(t *testing.T) {
	t.Parallel()
	ours := kit.NewAuthority(t)
	server := newPort(t, "B", ours.MemberTLSConfig(t), nil)
	dialer := newPort(t, "A", ours.MemberTLSConfig(t), server)
	conn := kit.Must(dialer.Dial(t.Context(), ForwardStream, "B", 0))(t)
	defer conn.Close()
	closed := kit.Must(dialer.Dial(t.Context(), ForwardStream, "B", 0))(t)
	_ = closed.Close() // a stream that this end has closed is distinguished too
	if _, err := closed.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("our own closing reads as %v", err)
	}
	server.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the stream of a peer that is gone: %v", err)
	}
	if _, err := dialer.Dial(t.Context(), ForwardStream, "B", 0); !errors.Is(err, syscall.ECONNREFUSED) || isUntrusted(err) {
		t.Errorf("dial: %v", err)
	}
}

// TestTLSCloseDoesNotWait checks that closing never waits, not even for a peer that reads nothing.
func TestTLSCloseDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, tlsCloseDoesNotWait)
}

func tlsCloseDoesNotWait(t *testing.T) {
	ours, network := kit.NewAuthority(t), simnet.New(1)
	var listeners [2]net.Listener
	var hosts [2]*simnet.Host
	for i := range hosts {
		hosts[i] = network.Start(i)
		var err error
		if listeners[i], err = hosts[i].Listen(1); err != nil {
			t.Fatal(err)
		}
	}
	server := newPortOn(t, listeners[1], hosts[1].Dial, "B", ours.MemberTLSConfig(t), nil, nil)
	hold := make(chan struct{})
	server.config.Forward = func(fsm.MemberID, net.Conn) { <-hold }
	defer close(hold)
	dialer := newPortOn(t, listeners[0], hosts[0].Dial, "A", ours.MemberTLSConfig(t), nil, server)
	conn, err := dialer.Dial(t.Context(), ForwardStream, "B", 0)
	if err != nil {
		t.Fatal(err)
	}
	raw := conn.(*memberStream).Conn.(abruptConn).NetConn()
	_ = raw.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil { // fill the buffers of the connection
		_, err = raw.Write(make([]byte, 64<<10))
	}
	_ = raw.SetWriteDeadline(time.Time{})
	start := time.Now()
	_ = conn.Close()
	if took := time.Since(start); took > 0 {
		t.Errorf("closing took %s", took)
	}
}

// TestSecureCertificateIsReplaced checks that the next stream presents a replaced certificate, at both ends,
// and that open streams continue.
func TestSecureCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	ours := kit.NewAuthority(t)
	current := new(atomic.Pointer[tls.Certificate])
	current.Store(ours.Issue(t, nil))
	server := newPort(t, "B", ours.TLSConfig(current), nil)
	seen := make(chan *big.Int, 2)
	server.config.Forward = func(_ fsm.MemberID, conn net.Conn) {
		seen <- conn.(*memberStream).ConnectionState().PeerCertificates[0].SerialNumber
		_, _ = io.Copy(conn, conn)
	}
	dialer := newPort(t, "A", ours.TLSConfig(current), server)
	var conns []net.Conn
	for range 2 {
		conn := kit.Must(dialer.Dial(t.Context(), ForwardStream, "B", 0))(t)
		defer conn.Close()
		want := current.Load().Leaf.SerialNumber
		shown := conn.(*memberStream).ConnectionState()
		if got := <-seen; got.Cmp(want) != 0 || shown.PeerCertificates[0].SerialNumber.Cmp(want) != 0 || shown.DidResume {
			t.Errorf("another certificate than %s was shown", want)
		}
		conns = append(conns, conn)
		current.Store(ours.Issue(t, nil))
	}
	for _, conn := range conns {
		kit.Must(conn.Write([]byte("x")))(t)
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("a stream with the certificate before: %v", err)
		}
	}
}

// BenchmarkSecureHandshake measures opening one stream.
func BenchmarkSecureHandshake(b *testing.B) {
	ours := kit.NewAuthority(b)
	for _, c := range []struct {
		name string
		tls  func() *tls.Config
	}{{"plain", func() *tls.Config { return nil }}, {"tls", func() *tls.Config { return ours.MemberTLSConfig(b) }}} {
		b.Run(c.name, func(b *testing.B) {
			server := newPort(b, "B", c.tls(), nil)
			dialer := newPort(b, "A", c.tls(), server)
			for b.Loop() {
				conn, err := dialer.Dial(b.Context(), ForwardStream, "B", 0)
				if err != nil {
					b.Fatal(err)
				}
				_ = conn.Close()
			}
		})
	}
}

// TestAuthoritiesAreReplaced: the next stream uses the authorities of that moment, at both ends: members pass from one authority to
// another through a time in which they trust both.
func TestAuthoritiesAreReplaced(t *testing.T) {
	t.Parallel()
	old, fresh := kit.NewAuthority(t), kit.NewAuthority(t)
	var trusted atomic.Pointer[x509.CertPool]
	trusted.Store(old.Pool)
	current := new(atomic.Pointer[tls.Certificate])
	current.Store(old.Issue(t, nil))
	config := old.TLSConfig(current)
	server := newTrustingPort(t, "B", config, trusted.Load, nil)
	dialer := newTrustingPort(t, "A", config, trusted.Load, server)
	dial := func() error {
		conn, err := dialer.Dial(t.Context(), ForwardStream, "B", 0)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	kit.OK(t, dial())
	current.Store(fresh.Issue(t, nil))
	if err := dial(); !isUntrusted(err) {
		t.Errorf("a certificate of another authority: %v, want that it is not trusted", err)
	}
	trusted.Store(old.PoolWith(fresh))
	for _, authority := range []*kit.Authority{fresh, old} {
		current.Store(authority.Issue(t, nil))
		if err := dial(); err != nil {
			t.Errorf("while both authorities are trusted: %v", err)
		}
	}
	trusted.Store(fresh.Pool)
	if err := dial(); !isUntrusted(err) {
		t.Errorf("a certificate of the authority before: %v, want that it is not trusted", err)
	}
}
