//go:build planted

package planted

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// chosen are the active faults.
var chosen = choose() //nolint:gochecknoglobals // set once, before main

func choose() (all []Fault) {
	for name := range strings.SplitSeq(os.Getenv("PEEKLOCK_PLANTED"), ",") {
		f := Fault(name)
		if f != "" && !slices.Contains(Faults, f) {
			panic(fmt.Sprintf("PEEKLOCK_PLANTED: no fault is named %q; the names are %q", f, Faults))
		}
		all = append(all, f)
	}
	return all
}

// Active reports whether fault f is built in and chosen. It may be called concurrently.
func Active(f Fault) bool { return slices.Contains(chosen, f) }
