//go:build !level2

package sim

import "github.com/peeklock/peeklock/cluster"

// setFormerRelease makes a member one of the former release. Only the build of the next release can do that.
func setFormerRelease(*cluster.Config) {}
