package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// The key that every cluster of the harness is started with, under the names that users
// of the official emulator know.
const (
	KeyName = "RootManageSharedAccessKey"
	Key     = "SAS_KEY_VALUE"
	// Two more keys with the same secret: one may send only, the other receive only.
	SendKeyName   = "Sender"
	ListenKeyName = "Listener"
)

// PeerArgs are the flags of members that encrypt their connections and gossip with each other, with files made for the test.
func PeerArgs(t testing.TB) []string {
	t.Helper()
	own, key, authority := Certificate(t)
	secret := filepath.Join(t.TempDir(), "gossip.key")
	kit.OK(t, os.WriteFile(secret, []byte("c2VjcmV0LTE2LWJ5dGVzIQ==\n"), 0o600))
	return []string{"--peer-cert", own, "--peer-key", key, "--peer-ca", authority, "--gossip-key", secret}
}

// Certificate writes a certificate for servers and clients with some host names, its key, and the certificate of the
// authority that signed it, as PEM files that the test removes. It returns their paths.
func Certificate(t testing.TB, hosts ...string) (own, key, authority string) {
	t.Helper()
	its, root := certificate(t, nil, nil)
	private, signed := certificate(t, its, root, hosts...)
	encoded := kit.Must(x509.MarshalPKCS8PrivateKey(private))(t)
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		kit.OK(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return path
	}
	return write("cert.pem", "CERTIFICATE", signed), write("key.pem", "PRIVATE KEY", encoded), write("ca.pem", "CERTIFICATE", root)
}

// certificate creates the certificate of an authority, or one for hosts that the authority signs.
func certificate(t testing.TB, its *ecdsa.PrivateKey, authority []byte, hosts ...string) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	as := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: hosts, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
	}
	parent, signs := as, own
	if its == nil {
		// OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
		as.Subject.CommonName = "test authority"
		as.IsCA, as.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		as.SerialNumber, as.KeyUsage = big.NewInt(2), x509.KeyUsageDigitalSignature
		as.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		signs = its
		if parent, err = x509.ParseCertificate(authority); err != nil {
			t.Fatal(err)
		}
	}
	bytes := kit.Must(x509.CreateCertificate(rand.Reader, as, parent, &own.PublicKey, signs))(t)
	return own, bytes
}

// ServerTLSArgs are the flags of a member with a certificate for clients that is made for the test and that
// no client trusts.
func ServerTLSArgs(t testing.TB) []string {
	t.Helper()
	own, key, _ := Certificate(t)
	return []string{"--tls-cert", own, "--tls-key", key}
}
