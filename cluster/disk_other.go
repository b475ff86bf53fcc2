//go:build !linux && !darwin

package cluster

// diskSpace is not known here.
func diskSpace(string) (size, free uint64) { return 0, 0 }
