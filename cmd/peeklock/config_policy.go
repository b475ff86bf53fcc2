package main

import (
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/cluster"
)

// zoneBytesMax is how long the name of a zone may be.
const zoneBytesMax = 64

// replaceAfterMin keeps a restart from being taken for a loss.
const replaceAfterMin = time.Minute

// policyFlags are those about where partitions lie.
func policyFlags(f *pflag.FlagSet) {
	f.String("zone", "", "where this member stands, such as an availability zone: replicas of a partition lie in different ones; recorded at each start")
	f.Bool("rebalance", false, "give members that join their share of the partitions without being asked; every member the same")
	f.String("replace-after", "", "after how long others are given what a member that is away held, like 10m; 0: never (default 0); every member the same")
}

// validatePolicy refuses what cluster would.
func (s *settings) validatePolicy() error {
	if len(s.Zone) > zoneBytesMax || !utf8.ValidString(s.Zone) {
		return usagef("zone: at most %d bytes of UTF-8", zoneBytesMax)
	}
	after, err := time.ParseDuration(s.ReplaceAfter)
	if err != nil || after != 0 && after < replaceAfterMin {
		return usagef("replace_after: 0 for never, or %s and more, like 10m, not %q", replaceAfterMin, s.ReplaceAfter)
	}
	return nil
}

// policy puts the settings that were validated into a member's configuration.
func (s *settings) policy(c *cluster.Config) {
	c.Zone, c.Rebalance = s.Zone, s.Rebalance
	c.ReplaceAfter, _ = time.ParseDuration(s.ReplaceAfter)
}
