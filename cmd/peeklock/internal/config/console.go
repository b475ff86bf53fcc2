package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/console"
)

// ConsoleMode is the setting console, which Validate has checked.
func (s *Settings) ConsoleMode() console.Mode {
	mode, _ := console.ParseMode(s.Console)
	return mode
}

// isPlainRemote reports whether a URL is one without TLS that leaves this machine, and the settings do not allow it.
func (s *Settings) isPlainRemote(u *url.URL) bool {
	return u.Scheme == "http" && !IsLoopback(u.Hostname()+":0") && !s.AllowRemotePlain
}

func (s *Settings) validateConsoleSignIn(issuer *url.URL) error {
	tokens, err := url.Parse(s.OIDCTokenOrigin)
	switch {
	case !slices.Contains(strings.Fields(s.OIDCScopes), "openid"):
		return s.invalid("oidc_scopes", "%q does not contain openid, without which the identity provider does not confirm who signed in: write it like \"openid offline_access\"", s.OIDCScopes)
	case !isOrigin(originOf(issuer)) || issuer.RawQuery != "" || issuer.Fragment != "":
		return s.invalid("oidc_issuer", "%q is no issuer that the console can use: write it like https://login.example.com/tenant, with a host name in ASCII", s.OIDCIssuer)
	case s.OIDCTokenOrigin == "":
		return nil
	case err != nil || !isOrigin(s.OIDCTokenOrigin):
		return s.invalid("oidc_token_origin", "%q is no origin: write scheme and host of the token endpoint without a path, like https://oauth2.example.com", s.OIDCTokenOrigin)
	case s.isPlainRemote(tokens):
		return s.invalid("oidc_token_origin", "an attacker between the browser and the provider could read tokens: use https, or set --allow-remote-plain if the network is trusted")
	}
	return nil
}

// originOf returns scheme and host of a URL.
func originOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// isOrigin reports whether a text is scheme and host, in characters that mean nothing else in a Content-Security-Policy.
func isOrigin(text string) bool {
	return regexp.MustCompile(`^https?://[A-Za-z0-9.-]+(:[0-9]+)?$`).MatchString(text)
}

// ConsoleSignIn returns how the console signs people in at the identity provider, from settings that Validate has checked.
func (s *Settings) ConsoleSignIn() console.SignIn {
	if s.OIDCClientID == "" {
		return console.SignIn{}
	}
	issuer, err := url.Parse(s.OIDCIssuer)
	if err != nil {
		return console.SignIn{}
	}
	origins := []string{originOf(issuer)}
	if s.OIDCTokenOrigin != "" && s.OIDCTokenOrigin != origins[0] {
		origins = append(origins, s.OIDCTokenOrigin)
	}
	return console.SignIn{Issuer: s.OIDCIssuer, ClientID: s.OIDCClientID, Scopes: s.OIDCScopes, Origins: origins}
}
