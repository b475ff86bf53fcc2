package config

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestGossipAnnouncesAnAddressThatOthersReach: gossip announces IP addresses only. A host name in advertise is resolved, by the
// family of the gossip address, instead of letting the gossip library choose an address of some interface.
func TestGossipAnnouncesAnAddressThatOthersReach(t *testing.T) {
	t.Parallel()
	names := map[string]string{
		"ip4 a": "9.9.0.11", "ip6 a": "2001:db8::11", "ip4 mapped": "::ffff:9.9.0.11", "ip4 debian": "127.0.1.1", "ip4 any": "0.0.0.0",
		"ip4 both": "127.0.1.1 9.9.0.11", "ip4 many": "9.9.0.12 9.9.0.11 9.9.0.12",
	}
	lookup := func(_ context.Context, family, host string) (found []netip.Addr, err error) {
		for text := range strings.FieldsSeq(names[family+" "+host]) {
			found = append(found, netip.MustParseAddr(text))
		}
		return found, nil
	}
	for _, c := range []struct{ advertise, gossip, want, refusal string }{
		{"a", "0.0.0.0:7946", "9.9.0.11:7946", ""},
		{"a", ":7946", "9.9.0.11:7946", ""},
		{"a", "9.9.0.11:7946", "9.9.0.11:7946", ""},
		{"a", "[::]:7946", "[2001:db8::11]:7946", ""},
		{"mapped", "0.0.0.0:1", "9.9.0.11:1", ""},
		{"both", "0.0.0.0:1", "9.9.0.11:1", ""},
		{"172.16.0.1", "0.0.0.0:1", "172.16.0.1:1", ""},
		{"", "0.0.0.0:1", "", ""},
		{"debian", "127.0.0.1:1", "", ""}, // the bound address is announced
		{"127.0.0.1", "127.0.0.1:1", "127.0.0.1:1", ""},
		{"debian", "0.0.0.0:1", "", `advertise: "debian" resolves to [127.0.1.1] on this machine`},
		{"any", "0.0.0.0:1", "", `advertise: "any" resolves to [0.0.0.0]`},
		{"many", "0.0.0.0:1", "", `advertise: "many" resolves to several addresses, [9.9.0.11 9.9.0.12]`},
		{"127.0.0.1", "0.0.0.0:1", "", "advertise: other machines cannot reach this member at 127.0.0.1"},
		{"0.0.0.0", "0.0.0.0:1", "", "advertise: other machines cannot reach this member at 0.0.0.0"},
	} {
		s := &Settings{Member: Member{Advertise: c.advertise, Gossip: c.gossip}}
		got, err := s.GossipAdvertise(t.Context(), lookup, slog.New(slog.DiscardHandler))
		if got != c.want || (err != nil) != (c.refusal != "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("advertise %q with gossip at %s: %q, %v; want %q, error %q", c.advertise, c.gossip, got, err, c.want, c.refusal)
		}
	}
}

// TestAdvertiseIsResolvedForAMinute: a name that does not resolve at the start of the machine is tried again for 60 s.
func TestAdvertiseIsResolvedForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Settings{Member: Member{Advertise: "a", Gossip: "0.0.0.0:7946"}}
		began := time.Now()
		lookup := func(after time.Duration) Lookup {
			return func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if time.Since(began) < after {
					return nil, errors.New("no such host")
				}
				return []netip.Addr{netip.MustParseAddr("9.9.0.11")}, nil
			}
		}
		if got, err := s.GossipAdvertise(t.Context(), lookup(50*time.Second), slog.New(slog.DiscardHandler)); err != nil || got != "9.9.0.11:7946" {
			t.Errorf("published after 50 s: %q, %v", got, err)
		}
		began = time.Now()
		_, err := s.GossipAdvertise(t.Context(), lookup(time.Hour), slog.New(slog.DiscardHandler))
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), `advertise: resolve "a" for gossip: no such host`) || took != resolveTimeMax {
			t.Errorf("never published: %v after %v, want an error that names advertise and its cause after %v", err, took, resolveTimeMax)
		}
	})
}
