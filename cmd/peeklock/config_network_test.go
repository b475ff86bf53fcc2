package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestProxyNetworks: networks are read in every layer's form, and what is none is refused.
func TestProxyNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		want    string
		refused string
	}{
		{nil, "[]", ""},
		{[]string{"--proxy-protocol-from", "10.1.0.0/16,2001:db8::/32", "--proxy-protocol-from", "10.2.3.4/32"}, "[10.1.0.0/16 2001:db8::/32 10.2.3.4/32]", ""},
		{[]string{"--proxy-protocol-from", "10.1.2.3/16"}, "[10.1.0.0/16]", ""},
		{[]string{"--proxy-protocol-from", "10.1.2.3"}, "", `"10.1.2.3" is no network`},
		{[]string{"--proxy-protocol-from", "balancer"}, "", "is no network"},
		{[]string{"--proxy-protocol-from", "10.0.0.0/33"}, "", "is no network"},
		{[]string{"--proxy-protocol-from", "::ffff:10.0.0.0/104"}, "", "is no network"},
	} {
		s := settingsOf(t, c.args...)
		err := s.validate()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		if networks, _ := s.proxyNetworks(); err != nil || fmt.Sprint(networks) != c.want {
			t.Errorf("%q: %v, %v", c.args, networks, err)
		}
	}
}
