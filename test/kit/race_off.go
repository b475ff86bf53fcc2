//go:build !race

package kit

// RaceDetector says whether the tests run with the race detector.
const RaceDetector = false
