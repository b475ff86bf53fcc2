package main

import (
	"fmt"

	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// applyTLS sets the TLS configuration of the client listeners of serve.
//
// TLS alone must never be weakened by the word that is needed for the members among
// themselves, nor by silence: without allow_remote_plain clients speak TLS, with it require_tls still asks
// for that. No address is exempt: a proxy on this machine has a loopback address.
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

// origins are the hosts whose web pages may connect over WebSocket. Signing in is by key
// or token, which a page has to know. The emulator's key is known to every page there is,
// and the browser of a developer reaches loopback: with it, pages of this machine only.
func origins(ownKey bool) []string {
	if ownKey {
		return []string{"*"}
	}
	return []string{"localhost", "localhost:*", "*.localhost", "*.localhost:*", "127.0.0.1", "127.0.0.1:*", `\[::1\]`, `\[::1\]:*`}
}
