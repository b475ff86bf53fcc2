package main

import (
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster"
)

// TestPlacementPolicySettings: where a member stands and what the cluster does unasked reach it, and
// what cannot be is refused before anything is opened.
func TestPlacementPolicySettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		want    cluster.Config
		refused string
	}{
		{},
		{args: []string{"--zone", "eu-1", "--rebalance", "--replace-after", "10m"}, want: cluster.Config{Zone: "eu-1", Rebalance: true, ReplaceAfter: 10 * time.Minute}},
		{args: []string{"--replace-after", "1m"}, want: cluster.Config{ReplaceAfter: time.Minute}},
		{args: []string{"--replace-after", "59s"}, refused: "replace_after: 0 for never"},
		{args: []string{"--replace-after", "-1m"}, refused: "replace_after"},
		{args: []string{"--replace-after", "soon"}, refused: `not "soon"`},
		{args: []string{"--zone", strings.Repeat("z", zoneBytesMax)}, want: cluster.Config{Zone: strings.Repeat("z", zoneBytesMax)}},
		{args: []string{"--zone", strings.Repeat("z", zoneBytesMax+1)}, refused: "zone: at most 64 bytes"},
		{args: []string{"--zone", "\xff"}, refused: "zone"},
	} {
		s := settingsOf(t, c.args...)
		err := s.validate()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		var got cluster.Config
		s.policy(&got)
		if err != nil || got.Zone != c.want.Zone || got.Rebalance != c.want.Rebalance || got.ReplaceAfter != c.want.ReplaceAfter {
			t.Errorf("%q: %+v, %v", c.args, got, err)
		}
	}
}
