package filter

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sameRemainder compares bits: -0 is not 0, and all NaN are one.
func sameRemainder(t *testing.T, x, y float64) {
	t.Helper()
	got, want := remainder(x, y), math.Mod(x, y)
	if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
		t.Fatalf("%v %% %v = %v, want %v", x, y, got, want)
	}
}

// TestRemainder: what replaces math.Mod gives the same numbers.
func TestRemainder(t *testing.T) {
	t.Parallel()
	special := []float64{
		0, math.Copysign(0, -1), 1, -1, 2, 3, 0.1, -0.3, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, -math.MaxFloat64,
		math.SmallestNonzeroFloat64, 3 * math.SmallestNonzeroFloat64, 0x1p-1022, 0x1p-1022 - math.SmallestNonzeroFloat64, 1 << 53, 1<<53 - 1,
	}
	for _, x := range special {
		for _, y := range special {
			sameRemainder(t, x, y)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		sameRemainder(t, math.Float64frombits(random.Uint64()), math.Float64frombits(random.Uint64()))
	}
}

func FuzzRemainder(f *testing.F) {
	f.Add(1.7e308, 3e-308)
	f.Fuzz(sameRemainder)
}
