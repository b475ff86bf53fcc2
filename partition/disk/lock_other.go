//go:build !unix

package disk

import (
	"fmt"
	"os"
)

// lockFile only opens the file here: the lock of raft.db keeps a second process out.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640) //nolint:gosec // a path of our own making
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return file, nil
}
