package listen

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	reloadEvery    = time.Second // shortest time between two reads of the files, which only new clients cause
	pemBytesMax    = 1 << 20     // of a certificate or key file
	minimumVersion = tls.VersionTLS12
)

// Certificate is a certificate and its key, in two PEM files that may be replaced while they are in use. It is
// safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu        sync.Mutex
	current   *tls.Certificate
	cert, key []byte // the bytes of current, or those that were refused last
	checked   time.Time
}

// LoadCertificate reads the two files: the certificate, followed by those of intermediate authorities if there are
// any, and the key.
func LoadCertificate(certFile, keyFile string, logger *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, logger: logger, checked: time.Now()}
	var err error
	if c.cert, c.key, err = c.read(); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
	}
	c.current = &pair
	return c, nil
}

// TLS returns the configuration of a server with this certificate: TLS 1.2 and later, with the cipher suites that
// Go considers safe. Open connections keep the certificate with which they started.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: minimumVersion,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.get(), nil
		},
	}
}

// get returns the certificate, reloaded if the files have changed. It compares the contents and not the times of
// the files: that is reliable, and the files are small. If the pair does not match, a replacement is in progress
// or someone made a mistake, and the previous certificate stays.
func (c *Certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < reloadEvery {
		return c.current
	}
	c.checked = time.Now()
	cert, key, err := c.read()
	if err == nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return c.current
	}
	var pair tls.Certificate
	if err == nil {
		c.cert, c.key = cert, key // logged once, whether they are valid or not
		pair, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		c.logger.Warn("failed to reload certificate", "error", err)
		return c.current
	}
	c.current = &pair
	c.logger.Info("certificate reloaded", "file", c.certFile, "not_after", pair.Leaf.NotAfter)
	return c.current
}

func (c *Certificate) read() (cert, key []byte, err error) {
	if cert, err = readPEM(c.certFile); err != nil {
		return nil, nil, fmt.Errorf("read the certificate: %w", err)
	}
	if key, err = readPEM(c.keyFile); err != nil {
		return nil, nil, fmt.Errorf("read the key of the certificate: %w", err)
	}
	return cert, key, nil
}

func readPEM(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, pemBytesMax+1))
	if err == nil && len(b) > pemBytesMax {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return b, err
}
