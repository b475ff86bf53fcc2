package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/peeklock/peeklock/cmd/listen"
)

// applyTLS says how the clients of a member of serve are listened to.
//
// TLS alone must never be weakened by the word that is needed for the members among
// themselves, nor by silence: without allow_remote_plain clients speak TLS, with it require_tls still asks
// for that. Nobody is excused for an address: a proxy on this machine has one on loopback.
func (s *settings) applyTLS(p *memberParts) error {
	p.origins = origins(s.ownKey)
	if s.TLSCert == "" {
		return nil
	}
	cert, err := listen.LoadCertificate(s.TLSCert, s.TLSKey, p.logger.With("room", "listen"))
	if err != nil {
		return usageError{err}
	}
	p.tls, p.requireTLS = cert.TLS(), s.RequireTLS || !s.AllowRemotePlain
	if s.TLSClientCA != "" {
		clients, err := listen.LoadAuthorities(s.TLSClientCA, p.logger.With("room", "listen"))
		if err != nil {
			return usageError{fmt.Errorf("tls_client_ca: %w", err)}
		}
		p.tls = cert.TLSFor(clients)
	}
	return nil
}

// origins are the hosts whose web pages may connect over WebSocket. Signing in is by key
// or token, which a page has to know. The emulator's key is known to every page there is,
// and the browser of a developer reaches loopback: with it, pages of this machine only.
func origins(ownKey bool) []string {
	if ownKey {
		return []string{"*"}
	}
	return []string{"localhost", "localhost:*", "*.localhost", "*.localhost:*", "127.0.0.1", "127.0.0.1:*", `\[::1\]`, `\[::1\]:*`}
}

// tlsClientConfig is the configuration of a TLS client that trusts the authorities in the PEM file,
// and those of the system when there is none.
func tlsClientConfig(caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(caFile) //nolint:gosec // the user names the file
	if err != nil {
		return nil, usageError{fmt.Errorf("read the certificates to trust: %w", err)}
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, usagef("%s holds no certificate in PEM form", caFile)
	}
	return config, nil
}
