//go:build !planted

package planted

// Active reports whether fault f is built in and chosen. It may be called concurrently.
func Active(Fault) bool { return false }
