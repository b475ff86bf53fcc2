package config

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/fsm"
)

// gossipKeysMax is the number of keys that a file may hold: two during a rotation, and a few old keys that were
// not removed.
const gossipKeysMax = 8

// HasOwnKey reports whether a key other than the emulator's, which is public, is configured. It is valid after
// AuthConfig.
func (s *Settings) HasOwnKey() bool { return s.ownKey }

// AuthConfig reads the keys of operators. It refuses to listen on addresses that other machines can reach without
// a key or without encryption, unless the settings allow it explicitly.
func (s *Settings) AuthConfig() (auth.Config, error) {
	secret, secondary, err := s.operatorSecrets()
	if err != nil {
		return auth.Config{}, err
	}
	hasKey := secret != "" || len(s.Keys) > 0
	s.ownKey = hasKey && secret != auth.DevKey && secondary != auth.DevKey
	if err := s.checkListenAddresses(s.ownKey); err != nil {
		return auth.Config{}, err
	}
	if !hasKey && !s.TrustLoopback {
		// With the emulator's key, every client that reaches a loopback port would be an operator, including
		// clients of a proxy.
		return auth.Config{}, errors.New("no operator key is configured: write one to a file (head -c 32 /dev/urandom | base64) and give key_file, or set trust_loopback where every process and forwarded connection of this machine may administer the cluster")
	}
	var config auth.Config
	if config.Keys, err = s.configuredKeys(secret, secondary); err != nil {
		return auth.Config{}, err
	}
	if err := config.Validate(); err != nil {
		return auth.Config{}, s.invalid("keys", "%w", err)
	}
	if config.Limits, err = s.loginLimits(); err != nil {
		return auth.Config{}, err
	}
	if config.Issuer, err = s.issuer(); err != nil {
		return auth.Config{}, err
	}
	return config, nil
}

// OperatorKeys reads the configured keys again; the key file may have changed since AuthConfig.
func (s *Settings) OperatorKeys() ([]auth.Key, error) {
	secret, secondary, err := s.operatorSecrets()
	if err != nil {
		return nil, err
	}
	if s.ownKey && (secret == auth.DevKey || secondary == auth.DevKey) {
		return nil, errors.New("the key file holds the emulator's key, which everybody knows")
	}
	return s.configuredKeys(secret, secondary)
}

func (s *Settings) configuredKeys(secret, secondary string) ([]auth.Key, error) {
	var keys []auth.Key
	if secret != "" || len(s.Keys) == 0 {
		keys = append(keys, auth.Key{Name: s.KeyName, Primary: cmp.Or(secret, auth.DevKey), Secondary: secondary, Rights: fsm.Manage})
	}
	for _, row := range s.Keys {
		rights, err := auth.ParseRights(row.Rights)
		if err != nil {
			return nil, s.invalid("keys", "%s: %w", row.Name, err)
		}
		keys = append(keys, auth.Key{Name: row.Name, Primary: row.Primary, Secondary: row.Secondary, Rights: rights})
	}
	return keys, nil
}

// operatorSecrets returns the secrets of the operator key, "" for those that are not configured.
func (s *Settings) operatorSecrets() (primary, secondary string, err error) {
	if s.KeyFile == "" {
		return s.Key, s.KeySecondary, nil
	}
	secrets, err := ReadSecrets(s.KeyFile)
	switch {
	case err != nil:
		return "", "", err
	case len(secrets) == 1:
		return secrets[0], s.KeySecondary, nil
	case s.KeySecondary != "":
		return "", "", fmt.Errorf("the key file %s holds two secrets, and key_secondary is a third one: remove one", s.KeyFile)
	}
	return secrets[0], secrets[1], nil
}

// secretsMax is the number of secrets in a key file: the new one and, during a rotation, the one before.
const secretsMax = 2

// ReadSecrets reads a key file in the form in which orchestrators mount them: one secret in a line, with or without a
// newline; a second line has the secret that the first replaces.
func ReadSecrets(path string) ([]string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read the key file: %w", err)
	}
	var secrets []string
	for line := range strings.SplitSeq(string(data), "\n") {
		if line = strings.TrimRight(line, "\r"); line != "" {
			secrets = append(secrets, line)
		}
	}
	switch {
	case len(secrets) == 0:
		return nil, fmt.Errorf("the key file %s is empty", path)
	case len(secrets) > secretsMax:
		return nil, fmt.Errorf("the key file %s has %d lines: it may hold the new secret and, below it, the one before", path, len(secrets))
	}
	return secrets, nil
}

// loginLimits returns the limits of failed logins.
func (s *Settings) loginLimits() (*auth.Limits, error) {
	limits := &auth.Limits{FailuresMax: s.LoginFailures, FailuresPerMinute: s.LoginFailuresPerMinute, DelayMax: time.Duration(s.LoginDelay), VerificationsMax: s.LoginVerifications}
	if err := limits.Validate(); err != nil {
		return nil, fmt.Errorf("login settings: %w", err)
	}
	return limits, nil
}

func (s *Settings) validateLogin() error {
	_, err := s.loginLimits()
	return err
}

// validateTLS refuses certificates without their keys.
func (s *Settings) validateTLS() error {
	peer := 0
	for _, file := range []string{s.PeerCert, s.PeerKey, s.PeerCA} {
		if file != "" {
			peer++
		}
	}
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return errors.New("tls_cert and tls_key belong together: give both")
	case s.RequireTLS && s.TLSCert == "":
		return errors.New("require_tls needs a certificate: give tls_cert and tls_key")
	case peer != 0 && peer != 3:
		return errors.New("peer_cert, peer_key and peer_ca belong together: give all three")
	case s.TLSClientCA != "" && s.TLSCert == "":
		return errors.New("tls_client_ca needs a certificate: give tls_cert and tls_key")
	}
	return nil
}

func (s *Settings) validateIssuer() error {
	switch {
	case s.OIDCIssuer == "" && s.OIDCAudience != "":
		return errors.New("oidc_audience needs the issuer of the tokens: give oidc_issuer, too")
	case s.OIDCIssuer == "" && s.OIDCClientID != "":
		return errors.New("oidc_client_id needs the identity provider that knows the client: give oidc_issuer and oidc_audience, too")
	case s.OIDCClientID == "" && (s.OIDCTokenOrigin != "" || s.IsGiven("oidc_scopes")):
		return errors.New("oidc_scopes and oidc_token_origin are for the console's sign-in: give oidc_client_id, too")
	case s.OIDCIssuer == "":
		return nil
	case s.OIDCAudience == "":
		return errors.New("oidc_issuer needs oidc_audience: without it, tokens for other services would be accepted")
	case s.OIDCRolesClaim == "":
		return s.invalid("oidc_roles_claim", "name the claim that holds the roles")
	}
	issuer, err := url.Parse(s.OIDCIssuer)
	switch {
	case err != nil || validateURL(s.OIDCIssuer) != nil:
		return s.invalid("oidc_issuer", "%q is not a URL: write it like https://login.example.com/tenant", s.OIDCIssuer)
	case s.isPlainRemote(issuer):
		return s.invalid("oidc_issuer", "an attacker between this member and the provider could issue tokens: use https, or set --allow-remote-plain if the network is trusted")
	case s.OIDCClientID != "":
		return s.validateConsoleSignIn(issuer)
	}
	return nil
}

// issuer returns the verifier for tokens of the identity provider, or nil if none is configured. It contacts the
// provider when the first token arrives, so that a member can start while the provider is down.
func (s *Settings) issuer() (*auth.Issuer, error) {
	if s.OIDCIssuer == "" {
		return nil, nil //nolint:nilnil // no issuer is configured, which is no error
	}
	issuer, err := auth.NewIssuer(auth.IssuerConfig{URL: s.OIDCIssuer, Audience: s.OIDCAudience, RolesClaim: s.OIDCRolesClaim, AllNamespaces: s.OIDCAllNamespaces})
	if err != nil {
		return nil, s.invalid("oidc_issuer", "%w", err)
	}
	return issuer, nil
}

// PeerTLS returns the TLS configuration for connections between members and the authorities that they trust now, or nil without
// TLS.
func (s *Settings) PeerTLS(logger *slog.Logger) (*tls.Config, func() *x509.CertPool, error) {
	if s.PeerCert == "" {
		return nil, nil, nil
	}
	cert, err := listen.LoadCertificate(s.PeerCert, s.PeerKey, logger)
	if err != nil {
		return nil, nil, err
	}
	trusted, err := listen.LoadAuthorities(s.PeerCA, logger)
	if err != nil {
		return nil, nil, err
	}
	config := cert.Peer()
	config.RootCAs = trusted.Pool()
	return config, trusted.Pool, nil
}

// ClientTLS returns the configuration of a TLS client that trusts the authorities in the PEM file, or those of the
// system if no file is given.
func ClientTLS(caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	text, err := os.ReadFile(caFile) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("read the certificates to trust: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", caFile)
	}
	return config, nil
}

// PinnedTLS returns the configuration of a TLS client that accepts exactly the server certificate that is first in the PEM
// file, whatever names it has.
func PinnedTLS(certFile string) (*tls.Config, error) {
	text, err := os.ReadFile(certFile) //nolint:gosec // the settings of the member name the file
	if err != nil {
		return nil, fmt.Errorf("read the certificate to expect: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", certFile)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the certificate itself
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
				return fmt.Errorf("the server has another certificate than %s: name the authorities to trust with --ca", certFile)
			}
			return nil
		},
	}, nil
}

// GossipKeys reads the gossip_key file. Its errors never show the content.
func (s *Settings) GossipKeys() ([][]byte, error) {
	if s.GossipKey == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.GossipKey)
	if err != nil {
		return nil, s.invalid("gossip_key", "%w", err)
	}
	var keys [][]byte
	for line := range bytes.FieldsSeq(data) {
		key, err := base64.StdEncoding.DecodeString(string(line))
		if n := len(key); err != nil || n != 16 && n != 24 && n != 32 {
			return nil, s.invalid("gossip_key", "key %d of %s is not 16, 24 or 32 bytes in base64", len(keys)+1, s.GossipKey)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > gossipKeysMax {
		return nil, s.invalid("gossip_key", "%s holds %d keys, 1 to %d are possible", s.GossipKey, len(keys), gossipKeysMax)
	}
	return keys, nil
}
