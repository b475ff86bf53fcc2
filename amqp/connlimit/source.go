package connlimit

import (
	"net"
	"net/netip"
)

// IPv6PrefixBits is the length of the prefix that stands for an IPv6 address: what one customer usually has.
const IPv6PrefixBits = 64

// Source returns the address that a connection is counted by: its IPv4 address, or the first address of its /64 for
// IPv6. It returns the zero Addr for connections without an IP address, such as a pipe or a Unix socket.
func Source(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return SourceOfIP(tcp.AddrPort().Addr())
}

// SourceOfIP is Source for an IP address.
func SourceOfIP(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if !ip.Is6() {
		return ip
	}
	prefix, err := ip.Prefix(IPv6PrefixBits)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}
