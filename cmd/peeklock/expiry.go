package main

import (
	"crypto/tls"
	"time"
)

// expiries returns when the current certificates of a member expire, by the peers that see them (clients,
// members). It requests the certificates as a client would, so that it notices a replaced file.
func (p memberParts) expiries() map[string]time.Time {
	ends := make(map[string]time.Time)
	for peers, config := range map[string]*tls.Config{"clients": p.tls, "members": p.cluster.PeerTLS} {
		if config == nil || config.GetCertificate == nil {
			continue
		}
		if pair, err := config.GetCertificate(&tls.ClientHelloInfo{}); err == nil && pair.Leaf != nil {
			ends[peers] = pair.Leaf.NotAfter
		}
	}
	return ends
}
