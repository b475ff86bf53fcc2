package main

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/listen"
)

// gossipKeysMax is how many keys a file may hold: two while they change, and a few that
// somebody forgot.
const gossipKeysMax = 8

// secureFlags are those about certificates, keys and who may do what.
func secureFlags(f *pflag.FlagSet) {
	f.String("tls-client-ca", "", "who signs the certificates that clients may show (SASL EXTERNAL), PEM file; read anew when it changes")
	f.String("peer-cert", "", "certificate for TLS between members, for servers and clients alike, PEM file; read anew when it changes")
	f.String("peer-key", "", "key of that certificate, PEM file")
	f.String("peer-ca", "", "who signs the certificates of members, PEM file; every member needs all three")
	f.String("gossip-key", "", "file with 1 to 8 keys for gossip, one a line: 16, 24 or 32 bytes in base64; the first encrypts, all decrypt")
	f.String("oidc-issuer", "", "URL of the identity provider whose tokens are accepted")
	f.String("oidc-audience", "", "audience that these tokens must name")
	f.String("oidc-roles-claim", "", "claim of these tokens that holds the roles (default roles)")
	f.Bool("oidc-all-namespaces", false, "accept these tokens in every namespace when they have no claim peeklock_namespaces (default: in the default namespace only)")
	f.String("audit-log", "", "append security decisions and administrative changes to this file as JSON (default: the ordinary log)")
}

// validateSecurity refuses halves of what works only as a whole.
func (s *settings) validateSecurity() error {
	peer := 0
	for _, file := range []string{s.PeerCert, s.PeerKey, s.PeerCA} {
		if file != "" {
			peer++
		}
	}
	switch {
	case peer != 0 && peer != 3:
		return usagef("peer_cert, peer_key and peer_ca belong together: give all three")
	case s.TLSClientCA != "" && s.TLSCert == "":
		return usagef("tls_client_ca needs a certificate: give tls_cert and tls_key")
	case s.OIDCIssuer == "" && s.OIDCAudience != "":
		return usagef("oidc_audience says whom tokens are for: give oidc_issuer, too")
	case s.OIDCIssuer == "":
		return nil
	case s.OIDCAudience == "":
		return usagef("oidc_issuer needs oidc_audience: tokens that are for somebody else must not open this door")
	case s.OIDCRolesClaim == "":
		return usagef("oidc_roles_claim: name the claim that holds the roles")
	}
	issuer, err := url.Parse(s.OIDCIssuer)
	switch {
	case err != nil || issuer.Host == "" || issuer.Scheme != "https" && issuer.Scheme != "http":
		return usagef("oidc_issuer: %q is no URL: write it like https://login.example.com/tenant", s.OIDCIssuer)
	case issuer.Scheme == "http" && !isLoopback(issuer.Hostname()+":0") && !s.AllowRemotePlain:
		return usagef("oidc_issuer: whoever sits between could issue tokens: use https, or say --allow-remote-plain if the network is trusted")
	}
	return nil
}

// issuer checks the tokens of the identity provider, nil for none. It is asked when the first
// token comes: a member starts without it.
func (s *settings) issuer() (*auth.Issuer, error) {
	if s.OIDCIssuer == "" {
		return nil, nil //nolint:nilnil // nothing is asked for, and nothing is wrong
	}
	issuer, err := auth.NewIssuer(auth.IssuerConfig{URL: s.OIDCIssuer, Audience: s.OIDCAudience, RolesClaim: s.OIDCRolesClaim, AllNamespaces: s.OIDCAllNamespaces})
	if err != nil {
		return nil, usagef("oidc_issuer: %w", err)
	}
	return issuer, nil
}

// missingEncryption names the setting without which an address is not encrypted, "" when it is.
func (s *settings) missingEncryption(a listenAddress) string {
	switch {
	case a.clients && s.TLSCert == "":
		return "tls_cert and tls_key"
	case a.setting == "peer" && s.PeerCert == "":
		return "peer_cert, peer_key and peer_ca"
	case a.setting == "gossip" && s.GossipKey == "":
		return "gossip_key"
	}
	return ""
}

// peerTLS is how members speak to each other, nil for plain.
func (s *settings) peerTLS(logger *slog.Logger) (*tls.Config, error) {
	if s.PeerCert == "" {
		return nil, nil //nolint:nilnil // nothing is asked for, and nothing is wrong
	}
	cert, err := listen.LoadCertificate(s.PeerCert, s.PeerKey, logger)
	if err != nil {
		return nil, usageError{err}
	}
	trusted, err := tlsClientConfig(s.PeerCA)
	if err != nil {
		return nil, err
	}
	config := cert.Peer()
	config.RootCAs = trusted.RootCAs
	return config, nil
}

// gossipKeys reads the file of gossip_key. Errors never show what stands in it.
func (s *settings) gossipKeys() ([][]byte, error) {
	if s.GossipKey == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.GossipKey)
	if err != nil {
		return nil, usageError{fmt.Errorf("gossip_key: %w", err)}
	}
	var keys [][]byte
	for line := range bytes.FieldsSeq(data) {
		key, err := base64.StdEncoding.DecodeString(string(line))
		if n := len(key); err != nil || n != 16 && n != 24 && n != 32 {
			return nil, usagef("gossip_key: key %d of %s is not 16, 24 or 32 bytes in base64", len(keys)+1, s.GossipKey)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > gossipKeysMax {
		return nil, usagef("gossip_key: %s holds %d keys, 1 to %d are possible", s.GossipKey, len(keys), gossipKeysMax)
	}
	return keys, nil
}

// audit opens the audit log, which is the ordinary log unless there is a file. Of the refusals of
// one client it tells some and counts the others. end may be called when nobody writes any more.
func (s *settings) audit(logger *slog.Logger) (audit *slog.Logger, end func(), err error) {
	if s.AuditLog == "" {
		lines := newRefusalLimiter(logger.With("room", "audit").Handler(), time.Now)
		return slog.New(lines), lines.close, nil
	}
	file, err := os.OpenFile(s.AuditLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("audit_log: %w", err)}
	}
	lines := newRefusalLimiter(slog.NewJSONHandler(file, nil).WithAttrs([]slog.Attr{slog.String("member", s.Name)}), time.Now)
	end = func() {
		lines.close()
		if err := file.Close(); err != nil {
			logger.Warn("audit log not closed", "error", err)
		}
	}
	return slog.New(lines), end, nil
}
