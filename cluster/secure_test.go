package cluster

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// TestSecurityConfigThatAdmitsEverybodyIsRefused checks that a configuration that would admit everybody, or nobody, is refused, and that no
// error contains a key.
func TestSecurityConfigThatAdmitsEverybodyIsRefused(t *testing.T) {
	t.Parallel()
	ours := kit.NewAuthority(t)
	valid := Default()
	valid.Dir, valid.Logger, valid.PeerTLS = "x", testLogger(), ours.MemberTLSConfig(t)
	valid.GossipKeys = [][]byte{make([]byte, 16), make([]byte, 24), make([]byte, 32)}
	kit.OK(t, valid.Validate())
	secret := "this is a secret!" // 17 bytes
	for word, change := range map[string]func(*Config){
		"names no authority":       func(c *Config) { c.PeerTLS.RootCAs = nil },
		"has no certificate":       func(c *Config) { c.PeerTLS.GetClientCertificate = nil },
		"gossip key 2 has 17":      func(c *Config) { c.GossipKeys = [][]byte{make([]byte, 16), []byte(secret)} },
		"9 gossip keys: at most 8": func(c *Config) { c.GossipKeys = make([][]byte, gossipKeysMax+1) },
	} {
		config := valid
		config.PeerTLS = valid.PeerTLS.Clone()
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", word, err)
		}
	}
	one := valid // a certificate that is not replaced at run time
	one.PeerTLS = &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{*ours.Issue(t, nil)}}
	if err := one.Validate(); err != nil {
		t.Error(err)
	}
}
