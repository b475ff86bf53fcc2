package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
)

// settingsOf are those of a command line of serve.
func settingsOf(t *testing.T, args ...string) *settings {
	t.Helper()
	cmd := newServe(process{})
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	s, err := loadSettings(process{}, cmd.Flags())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// written writes a file of the test and gives its path.
func written(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is reached from other machines must be encrypted, each place by what it takes,
// unless somebody says that the network is trusted (S.1).
func TestAddressesBeyondLoopbackNeedEncryption(t *testing.T) {
	t.Parallel()
	peers := []string{"--peer-cert", "c", "--peer-key", "k", "--peer-ca", "a"}
	gossip := []string{"--gossip-key", "g"}
	clients := []string{"--tls-cert", "c", "--tls-key", "k"}
	for _, c := range []struct {
		args []string
		want string // "": may be opened
	}{
		{[]string{"--peer", ":7947"}, "peer: :7947 can be reached from other machines and nothing is encrypted: give peer_cert, peer_key and peer_ca, or say --allow-remote-plain"},
		{append([]string{"--peer", ":7947"}, clients...), "give peer_cert"},
		{append([]string{"--peer", ":7947"}, peers...), ""},
		{append([]string{"--gossip", "0.0.0.0:7946"}, peers...), "gossip: 0.0.0.0:7946 can be reached from other machines and nothing is encrypted: give gossip_key"},
		{append([]string{"--gossip", "0.0.0.0:7946"}, gossip...), ""},
		{append(append([]string{"--peer", ":7947", "--gossip", ":7946", "--amqp", ":5672"}, gossip...), peers...), "amqp: :5672 can be reached from other machines and nothing is encrypted: give tls_cert and tls_key"},
		{append(append(append([]string{"--peer", ":7947", "--gossip", ":7946", "--amqp", ":5672", "--admin", ":5300", "--also", ":443"}, gossip...), peers...), clients...), ""},
		{[]string{"--peer", ":7947", "--gossip", ":7946", "--amqp", ":5672", "--allow-remote-plain"}, ""},
		{nil, ""},
	} {
		s := settingsOf(t, c.args...)
		switch err := s.checkListenAddresses(true); {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
		if err := s.checkListenAddresses(false); (err == nil) != (len(c.args) == 0) {
			t.Errorf("%v without a key: %v", c.args, err)
		}
	}
}

// Halves of what works only as a whole are refused.
func TestIncompleteSecuritySettingsAreRefused(t *testing.T) {
	t.Parallel()
	const oidc = "--oidc-issuer=https://login.example.com/t"
	for _, c := range []struct{ args, want string }{
		{"--peer-cert=c --peer-key=k", "peer_cert, peer_key and peer_ca belong together"},
		{"--peer-ca=c", "peer_cert, peer_key and peer_ca belong together"},
		{"--peer-cert=c --peer-key=k --peer-ca=a", ""},
		{"--tls-client-ca=a", "tls_client_ca needs a certificate"},
		{"--tls-client-ca=a --tls-cert=c --tls-key=k", ""},
		{"--oidc-audience=x", "give oidc_issuer, too"},
		{oidc, "oidc_issuer needs oidc_audience"},
		{oidc + " --oidc-audience=x", ""},
		{oidc + " --oidc-audience=x --oidc-roles-claim=", "name the claim"},
		{"--oidc-issuer=login --oidc-audience=x", "is no URL"},
		{"--oidc-issuer=http://login.example.com --oidc-audience=x", "could issue tokens: use https"},
		{"--oidc-issuer=http://login.example.com --oidc-audience=x --allow-remote-plain", ""},
		{"--oidc-issuer=http://127.0.0.1:8080 --oidc-audience=x", ""},
		{"--oidc-issuer=http://localhost:8080/x --oidc-audience=x", ""},
	} {
		err := settingsOf(t, strings.Fields(c.args)...).validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// The file of gossip keys holds one to eight; what stands in it is in no error.
func TestGossipKeys(t *testing.T) {
	t.Parallel()
	const (
		short = "c2VjcmV0LTE2LWJ5dGVzIQ=="                     // 16 bytes
		long  = "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtLS0tLS0=" // 32 bytes
	)
	keys, err := settingsOf(t, "--gossip-key", written(t, long+"\r\n\n "+short+"\n")).gossipKeys()
	if err != nil || len(keys) != 2 || string(keys[0]) != "secret-of-thirty-two-bytes------" || string(keys[1]) != "secret-16-bytes!" {
		t.Errorf("%q %v", keys, err)
	}
	if keys, err := settingsOf(t).gossipKeys(); keys != nil || err != nil {
		t.Error(keys, err)
	}
	if keys, err := settingsOf(t, "--gossip-key", written(t, strings.Repeat(short+"\n", gossipKeysMax))).gossipKeys(); len(keys) != gossipKeysMax || err != nil {
		t.Error(len(keys), err)
	}
	for content, want := range map[string]string{
		"": "holds 0 keys",
		strings.Repeat(short+"\n", gossipKeysMax+1): "holds 9 keys",
		short + "\nc2VjcmV0":                        "key 2 of",
		"secret-16-bytes!":                          "key 1 of",
	} {
		_, err := settingsOf(t, "--gossip-key", written(t, content)).gossipKeys()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "ecret") || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := settingsOf(t, "--gossip-key", "/none").gossipKeys(); err == nil {
		t.Error("a file that is not there was read")
	}
}

// The audit log is appended to, is nobody else's to read, and holds JSON.
func TestAuditLogFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	var ordinary bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&ordinary, nil))
	for range 2 {
		audit, closeFile, err := settingsOf(t, "--audit-log", path, "--name", "a").audit(logger)
		if err != nil {
			t.Fatal(err)
		}
		audit.Info("audit", "event", "login")
		closeFile()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	var line struct{ Msg, Event, Member string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil || len(lines) != 2 || line.Event != "login" || line.Member != "a" {
		t.Errorf("%v %s", err, data)
	}
	audit, closeFile, err := settingsOf(t).audit(logger)
	if err != nil {
		t.Fatal(err)
	}
	audit.Info("audit", "event", "login")
	closeFile()
	wants(t, ordinary.String(), "room=audit", "event=login")
	if _, _, err := settingsOf(t, "--audit-log", filepath.Join(path, "x")).audit(logger); err == nil {
		t.Error("a file was opened below a file")
	}
}

// An identity provider is configured without being asked: a member starts when it is away.
func TestIssuerIsNotContactedAtStart(t *testing.T) {
	t.Parallel()
	keys, err := settingsOf(t, "--key-file", written(t, auth.DevKey), "--oidc-issuer", "http://127.0.0.1:1/tenant", "--oidc-audience", "peeklock").keys()
	if err != nil || keys.Issuer == nil {
		t.Error(keys.Issuer, err)
	}
	if keys, err := settingsOf(t, "--key-file", written(t, auth.DevKey)).keys(); err != nil || keys.Issuer != nil {
		t.Error(keys.Issuer, err)
	}
}
