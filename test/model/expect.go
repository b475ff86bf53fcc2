package model

import (
	"os"
	"strings"
	"testing"
)

// IsFull reports whether models are checked with their full bounds: `make model`.
func IsFull() bool { return os.Getenv("PEEKLOCK_MODEL") == "full" }

// ExpectSafe checks that no state of a model, of at most statesMax, breaks an invariant, and that all were visited.
func ExpectSafe[S comparable](t *testing.T, name string, m Model[S], statesMax int) {
	t.Helper()
	r := Run(m, statesMax)
	t.Logf("%s: %v", name, r)
	if r.Violation != nil || !r.Complete {
		t.Errorf("%s: %v:\n%s", name, r, strings.Join(r.Trace, "\n"))
	}
}

// ExpectViolation checks that a model without one of its guards breaks an invariant.
func ExpectViolation[S comparable](t *testing.T, m Model[S], statesMax int) {
	t.Helper()
	r := Run(m, statesMax)
	t.Logf("%v:\n%s", r, strings.Join(r.Trace, "\n"))
	if r.Violation == nil {
		t.Error("no violation was found without the guard")
	}
}
