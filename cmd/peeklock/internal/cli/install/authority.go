package install

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"github.com/peeklock/peeklock/cmd/listen"
)

// Lifetimes of what init cluster writes.
const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 397 * 24 * time.Hour // the most that browsers accept
	backdate        = time.Hour            // clocks differ
)

const fileMode = 0o600

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority reads the authority of a name in a folder, or creates it.
func openAuthority(dir, name string, now time.Time) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createAuthority(certFile, keyFile, name, now)
	case err != nil:
		return nil, fmt.Errorf("read the authority %s: %w", certFile, err)
	}
	key, isECDSA := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !isECDSA || !pair.Leaf.IsCA || now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s cannot sign: it has expired, or init cluster has not made it: create new authorities in another folder with --dir", certFile)
	}
	return &authority{pair.Leaf, key}, nil
}

func createAuthority(certFile, keyFile, name string, now time.Time) (*authority, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Peeklock " + name, Organization: []string{rand.Text()[:8]}}, // two clusters have different authorities
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return new(authority).issue(certFile, keyFile, template)
}

// issue writes a new key and its certificate. An authority without a certificate lets the new one sign itself.
func (a *authority) issue(certFile, keyFile string, template *x509.Certificate) (*authority, error) {
	made, err := listen.Issue(template, a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	if err := replaceFile(keyFile, made.KeyPEM); err != nil {
		return nil, err
	}
	return &authority{made.Cert, made.Key}, replaceFile(certFile, made.CertPEM)
}

// issueFor writes a certificate for names and addresses that is valid for the usages.
func (a *authority) issueFor(certFile, keyFile string, names []string, now time.Time, usages ...x509.ExtKeyUsage) error {
	end := now.Add(certificateLife)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotBefore: now.Add(-backdate), NotAfter: end,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usages,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	_, err := a.issue(certFile, keyFile, template)
	return err
}

// replaceFile writes a file that only its owner can read, completely or not at all.
func replaceFile(path string, data []byte) error {
	return listen.WriteFileAtomically(path, data, fileMode)
}
