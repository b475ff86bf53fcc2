package kit

import (
	"os"
	"path/filepath"
	"testing"
)

// FlipBit flips the lowest bit of the byte at an offset of a file.
func FlipBit(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// CountFiles returns the number of files in dir whose names match a pattern of [filepath.Match].
func CountFiles(t *testing.T, dir, pattern string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
