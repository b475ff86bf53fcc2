//go:build !linux

package kit

import "testing"

// MemoryDir returns a folder that is removed at the end of the test.
func MemoryDir(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}
