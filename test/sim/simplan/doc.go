// Package simplan has the plans of simulations: how one is drawn from a seed, written, read, and made smaller.
//
// A [Plan] follows from its seed, its length and the kinds of faults alone: the package knows nothing of the clusters, which package sim
// runs, and has no clock and no state. Its functions are safe for concurrent use.
package simplan
