// Package origin tells for which address limits count a connection. Package amqp and the listener of all
// protocols (cmd/listen) use it, so that both count the same connections together. It keeps no state.
package origin

import (
	"net"
	"net/netip"
)

const ipv6PrefixBits = 64 // of an IPv6 address: the prefix that one customer usually has

// Of returns the IP address of a connection, or its /64 for IPv6. It returns the zero Addr for connections
// without an IP address, such as a pipe. It is safe for concurrent use.
func Of(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if !ip.Is6() {
		return ip
	}
	prefix, err := ip.Prefix(ipv6PrefixBits)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}
