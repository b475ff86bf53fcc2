package connection

import (
	"net"
	"strings"
)

// IsLoopbackHost reports whether a Host header names this machine: localhost, a name below it, or a loopback address,
// with or without a port. An address of the peer does not suffice to trust a request: a site whose DNS name is pointed at
// 127.0.0.1 would be "same origin" to a browser and could read the answers.
func IsLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
}
