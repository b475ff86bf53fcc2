package main

import (
	"fmt"

	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// applyTLS sets the TLS configuration of the client listeners of serve.
//
// TLS for clients must not be weakened by allow_remote_plain, which may be set for the connections between
// members, nor by default. Without allow_remote_plain clients must use TLS; with it they must if require_tls is
// set. No address is exempt: a proxy on this machine has a loopback address.
func applyTLS(s *config.Settings, p *memberParts) error {
	p.origins = origins(s.HasOwnKey())
	if s.TLSCert == "" {
		return nil
	}
	cert, err := listen.LoadCertificate(s.TLSCert, s.TLSKey, p.logger.With("component", "listen"))
	if err != nil {
		return cli.Usage(err)
	}
	p.tls, p.requireTLS = cert.TLS(), s.RequireTLS || !s.AllowRemotePlain
	if s.TLSClientCA != "" {
		clients, err := listen.LoadAuthorities(s.TLSClientCA, p.logger.With("component", "listen"))
		if err != nil {
			return cli.Usage(fmt.Errorf("tls_client_ca: %w", err))
		}
		p.tls = cert.TLSFor(clients)
	}
	return nil
}

// origins returns the hosts whose web pages may connect over WebSocket. Clients authenticate with a key or token,
// which a page has to know. The key of the emulator is public, and the browser of a developer reaches loopback, so
// with that key only pages of this machine may connect.
func origins(ownKey bool) []string {
	if ownKey {
		return []string{"*"}
	}
	return []string{"localhost", "localhost:*", "*.localhost", "*.localhost:*", "127.0.0.1", "127.0.0.1:*", `\[::1\]`, `\[::1\]:*`}
}
