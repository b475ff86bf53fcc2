package filter

import (
	"math"
	"math/bits"
)

// remainder returns math.Mod(x, y), bit for bit, in bounded time: math.Mod takes a step for each
// bit by which the exponents differ, which are 2,000 at most.
func remainder(x, y float64) float64 {
	switch {
	case y == 0 || math.IsInf(x, 0) || math.IsNaN(x) || math.IsNaN(y):
		return math.NaN()
	case math.Abs(x) < math.Abs(y) || x == 0:
		return x
	}
	a, up := decompose(x)
	b, down := decompose(y)
	// x = a * 2^up and y = b * 2^down with down <= up: 64 bits of the quotient at a time.
	rest := a % b
	for shift := up - down; shift > 0 && rest != 0; shift -= 64 {
		n := min(shift, 64)
		high, low := rest>>(64-n), rest<<n
		rest = bits.Rem64(high, low, b)
	}
	return math.Copysign(math.Ldexp(float64(rest), down), x)
}

// decompose splits the absolute value of a finite number that is not zero into m * 2^e.
func decompose(f float64) (m uint64, e int) {
	const mantissa = 52
	b := math.Float64bits(f)
	m, e = b&(1<<mantissa-1), int(b>>mantissa&0x7FF)
	if e == 0 {
		return m, 1 - 1023 - mantissa // a subnormal
	}
	return m | 1<<mantissa, e - 1023 - mantissa
}
