package main

import (
	"net/netip"

	"github.com/spf13/pflag"
)

// networkFlags are those about where clients come from.
func networkFlags(f *pflag.FlagSet) {
	f.StringSlice("proxy-protocol-from", nil, "networks of balancers that send a PROXY protocol header (version 1 or 2) on every connection, like 10.1.0.0/16; from there one is required, from elsewhere refused; repeatable")
}

// validateNetwork refuses what nobody could mean.
func (s *settings) validateNetwork() error {
	_, err := s.proxyNetworks()
	return err
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
