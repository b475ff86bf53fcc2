package listen

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/peeklock/peeklock/test/kit"
)

// issuer signs client certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T, name string) issuer {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	cert := kit.Must(x509.ParseCertificate(der))(t)
	return issuer{cert, key}
}

// pem returns the file that declares the issuer as trusted.
func (i issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

func (i issuer) sign(t *testing.T, name string, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, i.cert, &key.PublicKey, i.key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// identified opens a port that requests client certificates, and returns the TLS states that the AMQP server sees.
func identified(t *testing.T, clients *Authorities, files DevelopmentFiles) (string, <-chan tls.ConnectionState) {
	t.Helper()
	config := DefaultConfig()
	config.Listeners = []net.Listener{listenLoopback(t)}
	config.TLS = load(t, files).TLSFor(clients)
	p := kit.Must(Open(t.Context(), config))(t)
	states, done := make(chan tls.ConnectionState, 16), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := p.AMQP().Accept()
			if err != nil {
				return
			}
			states <- conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return p.AMQP().Addr().String(), states
}

// speak sends an AMQP header with or without a certificate, and returns the error that ended the connection.
func speak(t *testing.T, address string, config *tls.Config, certificates ...tls.Certificate) error {
	t.Helper()
	config = config.Clone()
	config.Certificates = certificates
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := conn.Write([]byte("AMQP\x00\x01\x00\x00")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the refusal arrives after the client's handshake
	return err
}

// The servers behind the port get the certificate of the client and the server name that it requested, in TLS and
// in WebSocket over TLS; without TLS they get neither. Clients may connect without a certificate, and one from an
// unknown authority is refused.
func TestClientCertificatesAreVerified(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	ours, foreign := newIssuer(t, "ours"), newIssuer(t, "foreign")
	path := filepath.Join(t.TempDir(), "clients.pem")
	kit.OK(t, os.WriteFile(path, ours.pem(), 0o600))
	clients := kit.Must(LoadAuthorities(path, slog.New(slog.DiscardHandler)))(t)
	address, states := identified(t, clients, files)
	expect := func(name, server string) {
		t.Helper()
		select {
		case s := <-states:
			got := ""
			if len(s.VerifiedChains) > 0 {
				got = s.VerifiedChains[0][0].Subject.CommonName
			}
			if got != name || s.ServerName != server {
				t.Errorf("certificate of %q, called %q; want %q, %q", got, s.ServerName, name, server)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("nobody came")
		}
	}
	reader := ours.sign(t, "reader", x509.ExtKeyUsageClientAuth)
	_ = speak(t, address, trusted, reader)
	expect("reader", "localhost")
	_ = speak(t, address, trusted)
	expect("", "localhost")
	for what, certificate := range map[string]tls.Certificate{
		"of a foreign issuer": foreign.sign(t, "reader", x509.ExtKeyUsageClientAuth), "of a server": ours.sign(t, "reader", x509.ExtKeyUsageServerAuth),
	} {
		// crypto/tls sends no certificate if none of the named issuers has signed it.
		forced := trusted.Clone()
		forced.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		if err := speak(t, address, forced); err == nil || !strings.Contains(err.Error(), "tls:") {
			t.Errorf("a certificate %s: %v", what, err)
		}
	}

	transport := &http.Transport{TLSClientConfig: trusted.Clone()}
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig.Certificates = []tls.Certificate{reader}
	ws, _, err := websocket.Dial(t.Context(), "wss://"+address+"/$servicebus/websocket", &websocket.DialOptions{Subprotocols: []string{subprotocolCloud}, HTTPClient: &http.Client{Transport: transport}}) //nolint:bodyclose // the library gives none to close
	if err != nil {
		t.Fatal(err)
	}
	expect("reader", "localhost")
	_ = ws.CloseNow()

	plain := kit.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", address))(t)
	defer plain.Close()
	kit.Must(plain.Write([]byte("AMQP\x00\x01\x00\x00")))(t)
	expect("", "")
}

// The authorities of clients are replaced while the port runs. A file without a certificate changes nothing and is
// logged once.
func TestAuthoritiesAreReplaced(t *testing.T) {
	t.Parallel()
	before, after := newIssuer(t, "before"), newIssuer(t, "after")
	path := filepath.Join(t.TempDir(), "clients.pem")
	write := func(content []byte) {
		t.Helper()
		kit.OK(t, os.WriteFile(path, content, 0o600))
	}
	write(before.pem())
	var log kit.LogLines
	a := kit.Must(LoadAuthorities(path, slog.New(slog.NewTextHandler(&log, nil))))(t)
	look := func() *x509.CertPool { // as if a second had passed
		a.mu.Lock()
		a.checked = time.Time{}
		a.mu.Unlock()
		return a.Pool()
	}
	pool := look()
	write(nil)
	for range 3 {
		if !look().Equal(pool) {
			t.Error("an empty file was taken")
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	write(append(before.pem(), after.pem()...))
	if look().Equal(pool) {
		t.Error("the new file was not taken")
	}
	if _, err := LoadAuthorities(path+"x", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file that is not there was loaded")
	}
}

// A member presents its certificate at both ends of a stream, with TLS 1.3.
func TestPeerShowsItsCertificate(t *testing.T) {
	t.Parallel()
	files, _ := development(t)
	config := load(t, files).Peer()
	server := kit.Must(config.GetCertificate(&tls.ClientHelloInfo{}))(t)
	client, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || client != server || config.MinVersion != tls.VersionTLS13 {
		t.Error(client, err, config.MinVersion)
	}
}
