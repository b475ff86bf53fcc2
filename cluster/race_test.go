//go:build race

package cluster

// testsPerProcessor is how many tests run side by side on each processor. The race detector
// makes them compute more than they wait.
const testsPerProcessor = 1
