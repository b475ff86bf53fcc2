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
)

// PeerArgs are the flags of members that encrypt their connections and gossip with each other, with files made for the test.
func PeerArgs(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if kind != "" {
			bytes = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
		}
		if err := os.WriteFile(path, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	its, authority := certificate(t, nil, nil)
	own, signed := certificate(t, its, authority)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--peer-cert", write("cert.pem", "CERTIFICATE", signed),
		"--peer-key", write("key.pem", "PRIVATE KEY", private),
		"--peer-ca", write("ca.pem", "CERTIFICATE", authority),
		"--gossip-key", write("gossip.key", "", []byte("c2VjcmV0LTE2LWJ5dGVzIQ==\n")),
	}
}

// certificate creates the certificate of an authority, or one for members that the authority signs.
func certificate(t testing.TB, its *ecdsa.PrivateKey, authority []byte) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	as := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
	}
	parent, signs := as, own
	if its == nil {
		as.IsCA, as.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		as.SerialNumber, as.KeyUsage = big.NewInt(2), x509.KeyUsageDigitalSignature
		as.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		signs = its
		if parent, err = x509.ParseCertificate(authority); err != nil {
			t.Fatal(err)
		}
	}
	bytes, err := x509.CreateCertificate(rand.Reader, as, parent, &own.PublicKey, signs)
	if err != nil {
		t.Fatal(err)
	}
	return own, bytes
}

// ServerTLSArgs are the flags of a member with a certificate for clients that is made for the test and that
// no client trusts.
func ServerTLSArgs(t testing.TB) []string {
	t.Helper()
	args := PeerArgs(t)
	return []string{"--tls-cert", args[1], "--tls-key", args[3]}
}
