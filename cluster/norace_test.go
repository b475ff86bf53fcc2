//go:build !race

package cluster

// testsPerProcessor is how many tests run side by side on each processor.
const testsPerProcessor = 2
