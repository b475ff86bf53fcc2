//go:build repeat

package sim

import _ "unsafe" // for go:linkname

// repeats says that the simulation was built with the overlay that command repeat writes.
const repeats = true

// bubbleSeed is the seed of the next bubble.
//
//go:linkname bubbleSeed runtime.simulationSeed
var bubbleSeed uint64

// bubbleState says how far the simulation is: goroutines that ran, random numbers, and what the process has of memory and threads.
//
//go:linkname bubbleState runtime.simulationState
var bubbleState [8]uint64
