package faults

import "github.com/peeklock/peeklock/test/overlay"

// Fault is a fault, and the test that must fail while it is active.
type Fault struct {
	Name    string   // in lower case with dashes
	Package string   // of the test, relative to the module
	Test    string   // name of the test, with subtests if needed
	Env     []string // of the test process, besides [Variable]
	Next    bool     // whether the test needs the next release (test/upgrade)
	Patches []overlay.Patch
}
