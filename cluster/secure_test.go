package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// authority signs certificates in memory.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

// issue signs a certificate without names, for members are reached by address.
func (a *authority) issue(t testing.TB, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "member"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// config shows whatever certificate lies in current.
func (a *authority) config(current *atomic.Pointer[tls.Certificate]) *tls.Config {
	return &tls.Config{
		RootCAs:        a.pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := current.Load(); c != nil {
				return c, nil
			}
			return new(tls.Certificate), nil // none
		},
	}
}

func (a *authority) member(t testing.TB) *tls.Config {
	t.Helper()
	current := new(atomic.Pointer[tls.Certificate])
	current.Store(a.issue(t, nil))
	return a.config(current)
}

// logLines is a log that a test reads while it is written.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) has(words ...string) bool {
	return l.count(words...) > 0
}

// count is in how many lines all the words are.
func (l *logLines) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
line:
	for text := range strings.Lines(l.b.String()) {
		for _, word := range words {
			if !strings.Contains(text, word) {
				continue line
			}
		}
		n++
	}
	return n
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// port is a peer port that serves forward streams by reading them, and counts those.
type port struct {
	*peers
	lines   *logLines
	streams atomic.Int32
}

func newPort(t testing.TB, self fsm.MemberID, config *tls.Config, to *port) *port {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &port{lines: new(logLines)}
	p.peers = &peers{
		self: self, listener: listener, log: p.lines.logger(), dialMax: waitMax, secure: newSecure(config),
		cluster: func() string { return "" },
		address: func(fsm.MemberID) (string, error) { return to.listener.Addr().String(), nil },
		raft:    func(fsm.PartitionID, net.Conn) bool { return false },
		forward: func(_ fsm.MemberID, conn net.Conn) {
			p.streams.Add(1)
			_, _ = io.Copy(conn, conn)
		},
	}
	p.start()
	t.Cleanup(p.close)
	return p
}

// TestPeersTrust: who may open a stream to whom. Whoever may not is told why, and told
// of, at both ends.
func TestPeersTrust(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	with := func(a *authority, c *tls.Certificate) *tls.Config {
		current := new(atomic.Pointer[tls.Certificate])
		current.Store(c)
		return a.config(current)
	}
	usage := func(usages ...x509.ExtKeyUsage) *tls.Config {
		return with(ours, ours.issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = usages }))
	}
	late := with(ours, ours.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
	for name, c := range map[string]struct {
		from, to       *tls.Config
		dialer, server string // words of the log; empty: the stream stands
	}{
		"plain":                       {nil, nil, "", ""},
		"tls":                         {ours.member(t), ours.member(t), "", ""},
		"no usages":                   {usage(), usage(), "", ""},
		"plain to tls":                {nil, ours.member(t), "takes streams in TLS only", "without TLS"},
		"tls to plain":                {ours.member(t), nil, "without TLS", "speaks TLS"},
		"another authority":           {theirs.member(t), ours.member(t), "unknown authority", "bad certificate"},
		"trusts us, foreign itself":   {with(ours, theirs.issue(t, nil)), ours.member(t), "unknown certificate authority", "unknown authority"},
		"no certificate":              {with(ours, nil), ours.member(t), "certificate required", "provide a certificate"},
		"expired":                     {late, ours.member(t), "expired", "expired"},
		"we are expired":              {ours.member(t), late, "expired", "bad certificate"},
		"a client's certificate":      {usage(x509.ExtKeyUsageClientAuth), ours.member(t), "bad certificate", "incompatible key usage"},
		"a server's certificate only": {ours.member(t), usage(x509.ExtKeyUsageServerAuth), "incompatible key usage", "bad certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newPort(t, "B", c.to, nil)
			dialer := newPort(t, "A", c.from, server)
			for range 2 { // refused again, told of once
				conn, err := dialer.dial(t.Context(), streamForward, "B", 0)
				if (err == nil) != (c.dialer == "") {
					t.Fatalf("dial: %v", err)
				}
				if err != nil {
					continue
				}
				if _, err := conn.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 5)
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
					t.Fatalf("read %q, %v", got, err)
				}
				_ = conn.Close()
			}
			if c.dialer == "" {
				return
			}
			eventually(t, "a line at the server", func() bool { return server.lines.has(textNoTrustAccept, c.server) })
			if !dialer.lines.has(textNoTrust, c.dialer, "peer=B") {
				t.Errorf("the dialer said %s", dialer.lines.b.String())
			}
			server.close()
			if n := server.streams.Load(); n != 0 {
				t.Errorf("%d streams were served", n)
			}
			if a, b := dialer.lines.count("WARN"), server.lines.count("WARN"); a != 1 || b != 1 {
				t.Errorf("%d lines at the dialer and %d at the server, want 1 and 1", a, b)
			}
		})
	}
}

// A silent peer holds a handshake for no longer than its bound, at either end, and what
// breaks off is no matter of trust.
func TestSecureHandshakeIsBounded(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ours := newAuthority(t)
	server := newPort(t, "B", ours.member(t), nil)
	dialer := newPort(t, "A", ours.member(t), server)
	dialer.address = func(fsm.MemberID) (string, error) { return mute.Addr().String(), nil }
	dialer.dialMax = 50 * time.Millisecond
	if _, err := dialer.dial(t.Context(), streamForward, "B", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v", err)
	}
	conn, err := net.Dial("tcp", server.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(4 * handshakeWaitMax)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the silent stream: %v", err)
	}
	if dialer.lines.has("WARN") || server.lines.has("WARN") {
		t.Error("a silent peer is said to be foreign")
	}
}

// A process that is gone is told from one that is not trusted: the first lets a follower
// stand for election at once (partition, campaign.go).
func TestSecureDialTellsTheDead(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	server := newPort(t, "B", ours.member(t), nil)
	dialer := newPort(t, "A", ours.member(t), server)
	conn, err := dialer.dial(t.Context(), streamForward, "B", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed, err := dialer.dial(t.Context(), streamForward, "B", 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close() // our own doing is told apart, too
	if _, err := closed.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("our own closing reads as %v", err)
	}
	server.close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the stream of a peer that is gone: %v", err)
	}
	if _, err := dialer.dial(t.Context(), streamForward, "B", 0); !errors.Is(err, syscall.ECONNREFUSED) || distrusted(err) {
		t.Errorf("dial: %v", err)
	}
}

// Closing never waits, not even for a peer that reads nothing.
func TestSecureCloseDoesNotWait(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	server := newPort(t, "B", ours.member(t), nil)
	hold := make(chan struct{})
	server.forward = func(fsm.MemberID, net.Conn) { <-hold }
	defer close(hold)
	dialer := newPort(t, "A", ours.member(t), server)
	conn, err := dialer.dial(t.Context(), streamForward, "B", 0)
	if err != nil {
		t.Fatal(err)
	}
	raw := conn.(sealed).NetConn()
	_ = raw.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil { // fill the way
		_, err = raw.Write(make([]byte, 64<<10))
	}
	_ = raw.SetWriteDeadline(time.Time{})
	start := time.Now()
	_ = conn.Close()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("closing took %s", took)
	}
}

// A certificate that is replaced is shown by the next stream, at both ends; those that
// stand go on.
func TestSecureCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	current := new(atomic.Pointer[tls.Certificate])
	current.Store(ours.issue(t, nil))
	server := newPort(t, "B", ours.config(current), nil)
	seen := make(chan *big.Int, 2)
	server.forward = func(_ fsm.MemberID, conn net.Conn) {
		seen <- conn.(sealed).ConnectionState().PeerCertificates[0].SerialNumber
		_, _ = io.Copy(conn, conn)
	}
	dialer := newPort(t, "A", ours.config(current), server)
	var conns []net.Conn
	for range 2 {
		conn, err := dialer.dial(t.Context(), streamForward, "B", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		want := current.Load().Leaf.SerialNumber
		shown := conn.(sealed).ConnectionState()
		if got := <-seen; got.Cmp(want) != 0 || shown.PeerCertificates[0].SerialNumber.Cmp(want) != 0 || shown.DidResume {
			t.Errorf("another certificate than %s was shown", want)
		}
		conns = append(conns, conn)
		current.Store(ours.issue(t, nil))
	}
	for _, conn := range conns {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("a stream with the certificate before: %v", err)
		}
	}
}

// A configuration that would let anybody in, or nobody, is refused, and no key is in the words.
func TestSecureConfig(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	valid := Default()
	valid.Dir, valid.Logger, valid.PeerTLS = "x", testLogger(), ours.member(t)
	valid.GossipKeys = [][]byte{make([]byte, 16), make([]byte, 24), make([]byte, 32)}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	secret := "this is a secret!" // 17 bytes
	for word, change := range map[string]func(*Config){
		"names no authority":       func(c *Config) { c.PeerTLS.RootCAs = nil },
		"has no certificate":       func(c *Config) { c.PeerTLS.GetClientCertificate = nil },
		"gossip key 2 has 17":      func(c *Config) { c.GossipKeys = [][]byte{make([]byte, 16), []byte(secret)} },
		"9 gossip keys: at most 8": func(c *Config) { c.GossipKeys = make([][]byte, gossipKeysMax+1) },
	} {
		config := valid
		config.PeerTLS = valid.PeerTLS.Clone()
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", word, err)
		}
	}
	one := valid // a certificate that does not change
	one.PeerTLS = &tls.Config{RootCAs: ours.pool, Certificates: []tls.Certificate{*ours.issue(t, nil)}}
	if err := one.Validate(); err != nil {
		t.Error(err)
	}
}

// BenchmarkForwardStream measures commands of 1 KiB that one member forwards to another,
// 256 outstanding, with a replica that answers at once.
func BenchmarkForwardStream(b *testing.B) {
	ours := newAuthority(b)
	for _, c := range []struct {
		name string
		tls  func() *tls.Config
	}{{"plain", func() *tls.Config { return nil }}, {"tls", func() *tls.Config { return ours.member(b) }}} {
		b.Run(c.name, func(b *testing.B) {
			group := &fakeGroup{answer: func([]byte) partition.Answer { return partition.Answer{Outcome: partition.Done} }}
			group.forget = true
			server := newPort(b, "B", c.tls(), nil)
			server.forward = func(from fsm.MemberID, conn net.Conn) {
				serveForward(context.Background(), fakeHost{group}, testLogger(), from, conn)
			}
			dialer := newPort(b, "A", c.tls(), server)
			f := newForwarder(testLogger(), time.Minute, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
				return dialer.dial(ctx, streamForward, to, 0)
			})
			b.Cleanup(f.close)
			const outstanding = 256
			got := make(answers, outstanding)
			command := fsm.AppendCommand(nil, fsm.Header{Origin: 1, Serial: 1}, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, 1024)}}})
			conn := f.to("B")
			b.SetBytes(int64(len(command)))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i >= outstanding {
					if a := <-got; a.answer.Outcome != partition.Done {
						b.Fatalf("outcome %d", a.answer.Outcome)
					}
				}
				conn.submit(1, command, got, uint64(i))
			}
			for range min(b.N, outstanding) {
				<-got
			}
		})
	}
}

// BenchmarkSecureHandshake is what opening one stream costs.
func BenchmarkSecureHandshake(b *testing.B) {
	ours := newAuthority(b)
	for _, c := range []struct {
		name string
		tls  func() *tls.Config
	}{{"plain", func() *tls.Config { return nil }}, {"tls", func() *tls.Config { return ours.member(b) }}} {
		b.Run(c.name, func(b *testing.B) {
			server := newPort(b, "B", c.tls(), nil)
			dialer := newPort(b, "A", c.tls(), server)
			for b.Loop() {
				conn, err := dialer.dial(b.Context(), streamForward, "B", 0)
				if err != nil {
					b.Fatal(err)
				}
				_ = conn.Close()
			}
		})
	}
}
