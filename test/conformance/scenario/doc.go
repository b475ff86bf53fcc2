// Package scenario lists the scenarios that clients must show and the clients, and evaluates the
// results. A suite runs its cases as it likes; its file <client>.scenarios says which of them
// show a scenario, or why the client cannot:
//
//	complete
//	    settles and is gone
//	transaction
//	    not offered: the client has no coordinator link (its source)
//
// A scenario is ok when all its cases passed. A case that did not run or is unknown
// fails the scenario, so that a renamed case does not pass unnoticed.
package scenario
