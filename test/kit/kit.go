package kit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Authority signs certificates in memory.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	Pool *x509.CertPool // of the authority alone
}

// NewAuthority creates an authority whose certificates are valid for an hour.
func NewAuthority(t testing.TB) *Authority {
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
	return &Authority{cert, key, pool}
}

// PoolWith trusts this authority and another one.
func (a *Authority) PoolWith(other *Authority) *x509.CertPool {
	pool := a.Pool.Clone()
	pool.AddCert(other.cert)
	return pool
}

// Issue signs a certificate without names, because members are reached by address.
func (a *Authority) Issue(t testing.TB, change func(*x509.Certificate)) *tls.Certificate {
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

// TLSConfig is the TLS configuration of a member with the certificate in current, or none.
func (a *Authority) TLSConfig(current *atomic.Pointer[tls.Certificate]) *tls.Config {
	return &tls.Config{
		RootCAs:        a.Pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := current.Load(); c != nil {
				return c, nil
			}
			return new(tls.Certificate), nil // none
		},
	}
}

// MemberTLSConfig is a TLS configuration with a new certificate.
func (a *Authority) MemberTLSConfig(t testing.TB) *tls.Config {
	t.Helper()
	current := new(atomic.Pointer[tls.Certificate])
	current.Store(a.Issue(t, nil))
	return a.TLSConfig(current)
}

// LogLines is a log that a test can read while others write it.
type LogLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *LogLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Has reports whether some line contains all the words.
func (l *LogLines) Has(words ...string) bool {
	return l.Count(words...) > 0
}

// Count is the number of lines that contain all the words.
func (l *LogLines) Count(words ...string) (n int) {
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

// Logger writes to l.
func (l *LogLines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// String is everything that was written.
func (l *LogLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// WaitMax is how long Eventually waits: much longer than needed, for machines that run other
// tests too.
const WaitMax = time.Minute

// Eventually waits until a condition holds, and fails the test after WaitMax.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(WaitMax)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("not in %s: %s", WaitMax, what)
		}
	}
}

// OK ends the test if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must returns the value of a call that has returned a value and an error, as in kit.Must(os.ReadFile(path))(t). An error ends the
// test.
func Must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}

// WriteFile writes a file that ends with the test, and returns its path.
func WriteFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// longVariable is set by `make check` and CI, which run every test.
const longVariable = "PEEKLOCK_LONG"

// Long skips a test that takes so long that a plain `go test ./...` leaves it out.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(longVariable) == "" {
		t.Skip("long: `make check` runs it, and so does PEEKLOCK_LONG=1")
	}
}

// Rounds returns how often a test repeats what it does with other random values, or at how many of many places it does it: usual
// in a plain `go test ./...`, and all where PEEKLOCK_LONG is set.
func Rounds(usual, all int) int {
	if os.Getenv(longVariable) == "" {
		return usual
	}
	return all
}
