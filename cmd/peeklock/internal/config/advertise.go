package config

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	resolveTimeMax = 60 * time.Second // a name may be published after the member starts
	resolveEvery   = time.Second
)

// Lookup resolves a host name to addresses of a family: "ip4", "ip6" or "ip". It is net.Resolver.LookupNetIP.
type Lookup func(ctx context.Context, family, host string) ([]netip.Addr, error)

// GossipAdvertise returns the ip:port that gossip announces, "" when advertise does not say it. A host name is resolved now, by
// the address family of the gossip address, and again for up to a minute while that fails. Other members must be able to reach
// the result: it is neither a loopback address nor unspecified, unless gossip is bound to a loopback address. The settings must be valid.
func (s *Settings) GossipAdvertise(ctx context.Context, lookup Lookup, logger *slog.Logger) (string, error) {
	host, port, _ := net.SplitHostPort(s.Gossip) // validated
	bound, _ := netip.ParseAddr(host)            // invalid: all addresses, or a name
	isLocal := IsLoopback(s.Gossip)
	address, err := netip.ParseAddr(s.Advertise)
	isName := err != nil // or empty
	switch {
	case s.Advertise == "" || isLocal && isName:
		return "", nil //nolint:nilerr // a name is no error
	case isName:
		if address, err = resolveAdvertise(ctx, lookup, family(bound), s.Advertise, logger); err != nil {
			return "", err
		}
	case !isLocal && !isReachable(address):
		return "", fmt.Errorf("advertise: other machines cannot reach this member at %s: set advertise to an address of this machine that they can reach", address)
	}
	return net.JoinHostPort(address.String(), port), nil
}

// family returns the address family in which a member bound to an address is reached.
func family(bound netip.Addr) string {
	if bound.Is6() && !bound.Is4In6() {
		return "ip6"
	}
	return "ip4"
}

// isReachable reports whether another machine may have a route to an address.
func isReachable(a netip.Addr) bool { return !a.IsLoopback() && !a.IsUnspecified() }

// resolveAdvertise returns the one address of a name that other members can reach.
func resolveAdvertise(ctx context.Context, lookup Lookup, family, name string, logger *slog.Logger) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeMax)
	defer cancel()
	found, err := lookup(ctx, family, name)
	if err != nil {
		logger.WarnContext(ctx, "failed to resolve the setting advertise, will retry", "name", name, "family", family, "for", resolveTimeMax, "error", err)
	}
	for err != nil {
		timer := time.NewTimer(resolveEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return netip.Addr{}, fmt.Errorf("advertise: resolve %q for gossip: %w: set advertise to a name that this machine can resolve, or to its IP address", name, err)
		case <-timer.C:
		}
		var now error
		if found, now = lookup(ctx, family, name); now == nil || ctx.Err() == nil {
			err = now // the error of a lookup that was cut short says nothing
		}
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	reachable := slices.DeleteFunc(slices.Clone(found), func(a netip.Addr) bool { return !isReachable(a) })
	switch len(reachable) {
	case 0:
		return netip.Addr{}, fmt.Errorf("advertise: %q resolves to %v on this machine, where other machines cannot reach it: set advertise to its IP address, or correct the line of this name in /etc/hosts", name, found)
	case 1:
		return reachable[0], nil
	}
	return netip.Addr{}, fmt.Errorf("advertise: %q resolves to several addresses, %v: set advertise to the one at which the other members reach this one", name, reachable)
}
