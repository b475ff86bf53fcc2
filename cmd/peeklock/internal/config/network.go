package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
)

const (
	// SocketName is the control socket in the data directory of a member.
	SocketName = "peeklock.sock"
	// SocketPathBytesMax is the longest path that every system accepts: sun_path has 104 bytes on macOS and BSD, 108 on
	// Linux, one of which is the terminator.
	SocketPathBytesMax = 103
)

// CheckSocketPath returns an error if the path is too long for a socket.
func CheckSocketPath(path string) error {
	if len(path) > SocketPathBytesMax {
		return fmt.Errorf("the path of the control socket has %d bytes, at most %d are possible: %s", len(path), SocketPathBytesMax, path)
	}
	return nil
}

// ListenAddress is an address that the member listens on.
type ListenAddress struct {
	Setting, Address string
	ForClients       bool // not for other members
}

// ListenAddresses returns all addresses that the member listens on.
func (s *Settings) ListenAddresses() []ListenAddress {
	all := []ListenAddress{{"amqp", s.AMQP, true}, {"admin", s.Admin, true}, {"peer", s.Peer, false}, {"gossip", s.Gossip, false}}
	for _, address := range s.Also {
		all = append(all, ListenAddress{"also", address, true})
	}
	return all
}

// checkListenAddresses refuses addresses that other machines can reach without encryption, unless
// allow_remote_plain is set, or without a key other than the emulator's, which is public. Both are decisions of
// the operator.
func (s *Settings) checkListenAddresses(ownKey bool) error {
	for _, a := range s.ListenAddresses() {
		if IsLoopback(a.Address) {
			continue
		}
		if missing := s.missingEncryption(a); missing != "" && !s.AllowRemotePlain {
			return fmt.Errorf("%s: %s can be reached from other machines and nothing is encrypted: give %s, or set --allow-remote-plain if the network is trusted", a.Setting, a.Address, missing)
		}
		if !ownKey {
			return fmt.Errorf("%s: %s can be reached from other machines: configure a key of your own first (key or key_file)", a.Setting, a.Address)
		}
	}
	return nil
}

// missingEncryption returns the names of the settings without which an address is not encrypted, or "" if it is
// encrypted.
func (s *Settings) missingEncryption(a ListenAddress) string {
	switch {
	case a.ForClients && s.TLSCert == "":
		return "tls_cert and tls_key"
	case a.Setting == "peer" && s.PeerCert == "":
		return "peer_cert, peer_key and peer_ca"
	case a.Setting == "gossip" && s.GossipKey == "":
		return "gossip_key"
	}
	return ""
}

// IsLoopback reports whether an address is reachable from this machine only.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// AdvertisedAddress returns the address at which others reach a listener that is bound to this address.
func (s *Settings) AdvertisedAddress(bound string) string {
	_, port, err := net.SplitHostPort(bound)
	if err != nil || s.Advertise == "" {
		return bound
	}
	return net.JoinHostPort(s.Advertise, port)
}

// ControlSocketPath returns the path of the control socket.
func (s *Settings) ControlSocketPath() string {
	return cmp.Or(s.ControlSocket, filepath.Join(s.Dir, SocketName))
}

// ProxyNetworks returns the networks in proxy_protocol_from.
func (s *Settings) ProxyNetworks() ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range s.ProxyProtocolFrom {
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().Is4In6() {
			return nil, s.invalid("proxy_protocol_from", "%q is not a network: write it like 10.1.0.0/16, and one address like 10.1.2.3/32", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

func (s *Settings) validateNetwork() error {
	if err := CheckSocketPath(s.ControlSocketPath()); err != nil {
		return fmt.Errorf("%w: give a shorter one with control_socket", err)
	}
	_, err := s.ProxyNetworks()
	return err
}

// validateURL refuses texts that are not a URL of an HTTP server.
func validateURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("not an http:// or https:// URL")
	}
	return nil
}
