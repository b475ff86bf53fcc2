//go:build !race

package cluster

// testsPerProcessor is the number of tests that run in parallel on each processor.
const testsPerProcessor = 2
