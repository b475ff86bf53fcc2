//go:build !linux

package bench

import "testing"

type shares struct{}

func newShares(*testing.B) *shares { return nil }

// limit skips the benchmark.
func (*shares) limit(b *testing.B, _ int, _ float64) {
	b.Helper()
	b.Skip("shares of a processor need Linux")
}
