// Package planted holds the names of faults that can be built into Peeklock on purpose, to show that the checks
// find them. Packages of the product ask [Active] at the place of the fault. Without the build tag "planted",
// Active is a constant false to the compiler, and nothing of a fault is in the binary. With the tag, the
// environment variable PEEKLOCK_PLANTED names the one fault that is active in the process.
//
// A fault is planted where a check should notice it; test/README.md lists each with the check that finds it.
package planted

// Fault is the name of a planted fault, in lower case with dashes.
type Fault string

// The faults, in alphabetical order.
const (
	// SkipLogSync makes a crash undo the newest transactions of a log, as if it had not synced them. It is
	// planted in the store of the simulation.
	SkipLogSync Fault = "skip-log-sync"
)

// Faults lists every planted fault once, in alphabetical order.
var Faults = []Fault{SkipLogSync} //nolint:gochecknoglobals // read only
