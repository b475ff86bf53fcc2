//go:build planted

package planted

import (
	"os"
	"slices"
	"strings"
)

// chosen are the active faults.
var chosen = strings.Split(os.Getenv("PEEKLOCK_PLANTED"), ",") //nolint:gochecknoglobals // set once, before main

// Active reports whether fault f is built in and chosen. It may be called concurrently.
func Active(f Fault) bool { return slices.Contains(chosen, string(f)) }
