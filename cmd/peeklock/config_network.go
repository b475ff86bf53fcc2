package main

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/spf13/pflag"
)

// networkFlags are those about where clients and operators come from.
func networkFlags(f *pflag.FlagSet) {
	f.String("control-socket", "", "path of the Unix socket for commands on this machine, which need no key there; at most 103 bytes (default "+socketName+" in the data folder)")
	f.Bool("trust-loopback", false, "treat clients with a loopback address as operators, without key and TLS; this includes all clients of a proxy, sidecar or port forward on this machine")
	f.StringSlice("proxy-protocol-from", nil, "networks of load balancers that begin every connection with a PROXY protocol header (version 1 or 2), like 10.1.0.0/16; the header is required from these networks and refused from all others; repeatable")
}

// validateNetwork refuses what nobody could mean.
func (s *settings) validateNetwork() error {
	if err := checkSocketPath(s.controlSocket()); err != nil {
		return usagef("%w: give a shorter one with control_socket", err)
	}
	_, err := s.proxyNetworks()
	return err
}

// logWarnings logs the settings that may give access to more clients than the operator intended.
func (s *settings) logWarnings(ctx context.Context, logger *slog.Logger) {
	if s.TrustLoopback {
		logger.WarnContext(ctx, "loopback addresses are trusted: every connection from one is an operator's", "setting", "trust_loopback")
	}
	if !s.ownKey {
		logger.WarnContext(ctx, "the emulator's key, which everybody knows, is an operator's: configure another", "setting", "key_file")
	}
}

// controlSocket is the path of the control socket.
func (s *settings) controlSocket() string {
	return cmp.Or(s.ControlSocket, filepath.Join(s.Dir, socketName))
}

// proxyNetworks are the networks that proxy_protocol_from names.
func (s *settings) proxyNetworks() ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range s.ProxyProtocolFrom {
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().Is4In6() {
			return nil, usagef("proxy_protocol_from: %q is no network: write it like 10.1.0.0/16, and one address like 10.1.2.3/32", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
