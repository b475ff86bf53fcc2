package main

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The expiry of each certificate is reported for the peers that see it, and follows changes; unencrypted listeners
// have none.
func TestCertificateExpiriesAreReported(t *testing.T) {
	t.Parallel()
	end := time.Unix(1_900_000_000, 0)
	shown := func() *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return &tls.Certificate{Leaf: &x509.Certificate{NotAfter: end}}, nil
			},
		}
	}
	var p memberParts
	if got := p.expiries(); len(got) != 0 {
		t.Errorf("without TLS: %v", got)
	}
	p.tls = shown()
	if d := cmp.Diff(map[string]time.Time{"clients": end}, p.expiries()); d != "" {
		t.Error(d)
	}
	p.cluster.PeerTLS = shown()
	end = end.Add(time.Hour) // the files were replaced
	if d := cmp.Diff(map[string]time.Time{"clients": end, "members": end}, p.expiries()); d != "" {
		t.Error(d)
	}
}
