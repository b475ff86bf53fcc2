package main

import "github.com/peeklock/peeklock/fsm/planted"

// check is the test that must fail while a fault is active.
type check struct {
	fault planted.Fault
	pkg   string   // of the test, relative to the module
	test  string   // name of the test, with subtests if needed
	env   []string // of the test process, besides PEEKLOCK_PLANTED
}

// checks lists the check of every planted fault, in the order of planted.Faults.
func checks() []check {
	return []check{
		{planted.SkipLogSync, "test/sim/simfs", "TestALogKeepsWhatItConfirmed", nil},
	}
}
