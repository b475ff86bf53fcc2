package cli

import (
	"runtime/debug"
	"testing"

	"github.com/peeklock/peeklock/cluster/gossip"
)

// TestVersionFitsIntoGossip: a member announces its version, and does not start with one that is too long.
func TestVersionFitsIntoGossip(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"":                                     "dev",
		"(devel)":                              "dev",
		"v0.3.0":                               "v0.3.0",
		"v0.3.0+dirty":                         "v0.3.0+dirty",
		"v0.3.0-rc.1":                          "v0.3.0-rc.1",
		"v0.0.0-20261122220821-80e9074abcde":   "dev-80e9074abcde",
		"v0.3.1-0.20261122220821-80e9074abcde": "dev-80e9074abcde",
		"v0.3.0-rc.1.0.20261122220821-80e9074abcde+dirty": "dev-80e9074abcde+dirty",
	} {
		got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: version}})
		if got != want || len(got) > gossip.VersionBytesMax {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
