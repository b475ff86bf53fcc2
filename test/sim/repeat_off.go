//go:build !repeat

package sim

// repeats says that the simulation was built with the overlay that command repeat writes.
const repeats = false

// Without that overlay, these variables of the patched runtime are not used.
var (
	bubbleSeed  uint64    //nolint:gochecknoglobals,unused // as with the overlay; the tests set it
	bubbleState [8]uint64 //nolint:gochecknoglobals // as with the overlay
)
