package main

import (
	"crypto/tls"
	"time"
)

// expiries tells when the certificates end that a member shows now, by who is shown them. Asking is
// what a client does, so a file that was replaced is seen.
func (p memberParts) expiries() map[string]time.Time {
	ends := make(map[string]time.Time)
	for who, config := range map[string]*tls.Config{"clients": p.tls, "members": p.cluster.PeerTLS} {
		if config == nil || config.GetCertificate == nil {
			continue
		}
		if pair, err := config.GetCertificate(&tls.ClientHelloInfo{}); err == nil && pair.Leaf != nil {
			ends[who] = pair.Leaf.NotAfter
		}
	}
	return ends
}
