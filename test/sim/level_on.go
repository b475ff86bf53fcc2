//go:build level2

package sim

import "github.com/peeklock/peeklock/cluster"

// setFormerRelease makes a member one of the former release.
func setFormerRelease(c *cluster.Config) { c.ReadableLevel = 1 }
