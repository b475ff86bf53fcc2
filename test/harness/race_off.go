//go:build !race

package harness

// raceDetector says whether this test runs with the race detector.
const raceDetector = false
