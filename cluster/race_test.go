//go:build race

package cluster

// testsPerProcessor is the number of tests that run in parallel on each processor. With the race detector they
// compute more than they wait.
const testsPerProcessor = 1
