package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Authorities holds the certificates of the authorities that sign certificates of clients or of members, in a PEM file that may be
// replaced while it is in use. It is safe for concurrent use.
type Authorities struct {
	file   string
	logger *slog.Logger

	mu      sync.Mutex
	current *x509.CertPool
	pem     []byte // content of current, or that which was refused last
	checked time.Time
}

// LoadAuthorities reads the file, which has one certificate or more.
func LoadAuthorities(file string, logger *slog.Logger) (*Authorities, error) {
	a := &Authorities{file: file, logger: logger, checked: time.Now()}
	var err error
	if a.pem, err = readPEM(file); err != nil {
		return nil, fmt.Errorf("read the certificates to trust: %w", err)
	}
	if a.current, err = a.pool(a.pem); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Authorities) pool(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", a.file)
	}
	return pool, nil
}

// Pool returns the authorities, reloaded if the file has changed. A file that cannot be read or has no certificate
// changes nothing: an empty one would refuse all clients, and it is unknown whether that is intended.
func (a *Authorities) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.checked) < reloadEvery {
		return a.current
	}
	a.checked = time.Now()
	pem, err := readPEM(a.file)
	if err == nil && bytes.Equal(pem, a.pem) {
		return a.current
	}
	var pool *x509.CertPool
	if err == nil {
		a.pem = pem // logged once, whether it is valid or not
		pool, err = a.pool(pem)
	}
	if err != nil {
		a.logger.Warn("failed to reload authorities", "file", a.file, "error", err)
		return a.current
	}
	a.current = pool
	a.logger.Info("authorities reloaded", "file", a.file)
	return a.current
}

// TLSFor is [Certificate.TLS] for a server that also requests a certificate from clients. Clients may connect
// without one; a certificate must be signed by the authorities and valid for clients.
func (c *Certificate) TLSFor(clients *Authorities) *tls.Config {
	config := c.TLS()
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs = clients.Pool()
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = clients.Pool()
		return now, nil
	}
	return config
}

// Peer returns the configuration for connections between members, which present the certificate as client and as
// server. The caller sets the authorities that it trusts.
func (c *Certificate) Peer() *tls.Config {
	config := c.TLS()
	config.MinVersion = tls.VersionTLS13
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return c.get(), nil
	}
	return config
}
