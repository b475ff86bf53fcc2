//go:build planted

package planted

import (
	"fmt"
	"os"
	"slices"
)

// chosen is the one active fault, "" when none is.
var chosen = choose() //nolint:gochecknoglobals // set once, before main

func choose() Fault {
	f := Fault(os.Getenv("PEEKLOCK_PLANTED"))
	if f != "" && !slices.Contains(Faults, f) {
		panic(fmt.Sprintf("PEEKLOCK_PLANTED: no fault is named %q; the names are %q", f, Faults))
	}
	return f
}

// Active reports whether fault f is built in and chosen. It may be called concurrently.
func Active(f Fault) bool { return f == chosen }
