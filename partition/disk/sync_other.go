//go:build !linux

package disk

// SyncData makes the content of a file durable.
func SyncData(f File) error { return f.Sync() }
