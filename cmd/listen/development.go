package listen

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Lifetimes of the certificates that Development creates.
const (
	authorityLife   = 10 * 365 * 24 * time.Hour // users trust it manually, once
	certificateLife = 397 * 24 * time.Hour      // the most that browsers accept
	renewBefore     = 30 * 24 * time.Hour       // when less is left at a start, a new one is created
	backdate        = time.Hour                 // clocks of containers differ
)

// DevelopmentFiles are the paths of the development certificate.
type DevelopmentFiles struct {
	CA   string `json:"ca"`          // certificate of the authority, which clients must trust
	Cert string `json:"certificate"` // certificate that the listeners present
	Key  string `json:"key"`
	// Missing are names that the authority, which stays, may not sign for.
	Missing []string `json:"missing,omitempty"`
}

// madeBy is the organization in the certificates that Development creates. No other file is ever replaced.
const madeBy = "peeklock dev"

// Development creates an authority and a certificate for the loopback names of this machine and for further names and addresses
// in the directory, or loads existing ones. A certificate that expires soon is replaced. The authority stays, so that clients that
// trust it need no change. Files that Development did not create are used and never replaced: a certificate as it is,
// an authority to sign with. It is an error if they cannot be used.
//
// The authority can sign for loopback names and the further names of its creation only (name constraints, RFC 5280, 4.2.1.10): its key is stored
// unencrypted in a development directory, and a developer may have configured a browser to trust it.
func Development(dir string, further ...string) (DevelopmentFiles, error) {
	f := DevelopmentFiles{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return DevelopmentFiles{}, fmt.Errorf("create the folder of certificates: %w", err)
	}
	now := time.Now()
	isForeign, err := readForeign(f.Cert)
	if err == nil && isForeign {
		_, err = loadForeign(f.Cert, f.Key, now)
		if _, statErr := os.Stat(f.CA); errors.Is(statErr, fs.ErrNotExist) {
			f.CA = f.Cert
		}
		if err == nil {
			return f, nil
		}
	}
	if err != nil {
		return DevelopmentFiles{}, fmt.Errorf("development certificate: %w", err)
	}
	ca, caKey, err := developmentAuthority(f.CA, filepath.Join(dir, "ca-key.pem"), authority(now, further))
	if err != nil {
		return DevelopmentFiles{}, fmt.Errorf("development authority: %w", err)
	}
	wanted := loopback(now, ca)
	f.Missing = addNames(wanted, ca, further)
	cert, _, err := readPair(f.Cert, f.Key)
	if err == nil && now.Add(renewBefore).Before(cert.NotAfter) && cert.CheckSignatureFrom(ca) == nil && hasNames(cert, wanted) {
		return f, nil
	}
	// Missing, old, signed by another authority, for other names, or without its key: replace it.
	if _, _, err := issue(f.Cert, f.Key, wanted, ca, caKey); err != nil {
		return DevelopmentFiles{}, fmt.Errorf("development certificate: %w", err)
	}
	return f, nil
}

// addNames adds the names and addresses to a certificate for which the authority may sign, and returns the others.
func addNames(cert, ca *x509.Certificate, further []string) (missing []string) {
	for _, name := range further {
		ip := net.ParseIP(name)
		switch {
		case slices.Contains(cert.DNSNames, name) || slices.ContainsFunc(cert.IPAddresses, ip.Equal):
		case ip != nil && (len(ca.PermittedIPRanges) == 0 || slices.ContainsFunc(ca.PermittedIPRanges, func(n *net.IPNet) bool { return n.Contains(ip) })):
			cert.IPAddresses = append(cert.IPAddresses, ip)
		case ip == nil && (len(ca.PermittedDNSDomains) == 0 || slices.Contains(ca.PermittedDNSDomains, name)):
			cert.DNSNames = append(cert.DNSNames, name)
		default:
			missing = append(missing, name)
		}
	}
	return missing
}

// hasNames reports whether a certificate has the names of a template and no others.
func hasNames(cert, template *x509.Certificate) bool {
	return slices.Equal(cert.DNSNames, template.DNSNames) && slices.EqualFunc(cert.IPAddresses, template.IPAddresses, net.IP.Equal)
}

// developmentAuthority reads the authority, or creates it from the template. One that somebody else made is used as long as it is valid.
func developmentAuthority(certFile, keyFile string, template *x509.Certificate) (*x509.Certificate, crypto.Signer, error) {
	now := template.NotBefore.Add(backdate)
	isForeign, err := readForeign(certFile)
	if err != nil {
		return nil, nil, err
	}
	if isForeign {
		pair, err := loadForeign(certFile, keyFile, now)
		if err != nil {
			return nil, nil, err
		}
		signer, isSigner := pair.PrivateKey.(crypto.Signer)
		if !isSigner || !pair.Leaf.IsCA {
			return nil, nil, fmt.Errorf("%s is not the certificate of an authority", certFile)
		}
		return pair.Leaf, signer, nil
	}
	ca, caKey, err := readPair(certFile, keyFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.Add(certificateLife).After(ca.NotAfter) {
		ca, caKey, err = issue(certFile, keyFile, template, nil, nil)
	}
	return ca, caKey, err
}

// readForeign reports whether a file is a certificate that Development did not create. A missing file is none, and one
// that cannot be read is an error.
func readForeign(certFile string) (bool, error) {
	text, err := readPEM(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return false, fmt.Errorf("%s is not a PEM file: correct or remove it", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false, fmt.Errorf("%s: %w: correct or remove it", certFile, err)
	}
	return !slices.Contains(cert.Subject.Organization, madeBy), nil
}

// loadForeign loads a certificate that Development did not create, with its key.
func loadForeign(certFile, keyFile string, now time.Time) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil && now.After(pair.Leaf.NotAfter) {
		err = fmt.Errorf("expired at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err != nil {
		return pair, fmt.Errorf("%s was not made by %s, which leaves it as it is, and cannot be used: %w: correct it, or remove it and %s", certFile, madeBy, err, keyFile)
	}
	return pair, nil
}

// authority returns the template of the authority certificate, which may sign for loopback and for further names.
func authority(now time.Time, further []string) *x509.Certificate {
	ca := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Peeklock development CA", Organization: []string{madeBy}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{"localhost"}, // and its subdomains
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	for _, name := range further {
		ip := net.ParseIP(name)
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		if ip == nil {
			ca.PermittedDNSDomains = append(ca.PermittedDNSDomains, name)
		} else {
			ca.PermittedIPRanges = append(ca.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
		}
	}
	return ca
}

// loopback returns the template of the server certificate, which ends before its authority does.
func loopback(now time.Time, ca *x509.Certificate) *x509.Certificate {
	end := now.Add(certificateLife)
	if end.After(ca.NotAfter) {
		end = ca.NotAfter
	}
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: "localhost", Organization: []string{madeBy}},
		NotBefore: now.Add(-backdate), NotAfter: end,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{"localhost", "*.localhost"}, // a namespace is a subdomain of localhost
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
	}
}

// Issued is a certificate with its key, both also as PEM.
type Issued struct {
	Cert            *x509.Certificate
	Key             *ecdsa.PrivateKey
	CertPEM, KeyPEM []byte
}

// Issue creates a key and a certificate for it, signed by the parent or self-signed without one. It sets the serial number
// of the template.
func Issue(template, parent *x509.Certificate, parentKey crypto.Signer) (Issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, fmt.Errorf("generate a key: %w", err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Issued{}, fmt.Errorf("generate a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return Issued{}, fmt.Errorf("sign: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Issued{}, fmt.Errorf("encode the key: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return Issued{
		cert, key,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, err
}

// issue is Issue, and writes the key and the certificate. The key is written first, because a certificate without its key
// would be found at the next start and be useless.
func issue(certFile, keyFile string, template, parent *x509.Certificate, parentKey crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	made, err := Issue(template, parent, parentKey)
	if err != nil {
		return nil, nil, err
	}
	if err := WriteFileAtomically(keyFile, made.KeyPEM, 0o600); err != nil {
		return nil, nil, err
	}
	return made.Cert, made.Key, WriteFileAtomically(certFile, made.CertPEM, 0o644)
}

// WriteFileAtomically writes a file completely or not at all.
func WriteFileAtomically(path string, data []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path+".new", data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readPair reads the certificate and the key that issue wrote.
func readPair(certFile, keyFile string) (*x509.Certificate, crypto.Signer, error) {
	var der [2][]byte
	for i, path := range []string{certFile, keyFile} {
		text, err := readPEM(path)
		if err != nil {
			return nil, nil, err
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, nil, fmt.Errorf("%s is not a PEM file", path)
		}
		der[i] = block.Bytes
	}
	cert, err := x509.ParseCertificate(der[0])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certFile, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der[1])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s is not the key of %s: remove both", keyFile, certFile)
	}
	return cert, signer, nil
}
