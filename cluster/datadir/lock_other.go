//go:build !unix

package datadir

import (
	"fmt"
	"os"
)

// lockFile only opens the file here: the lock of raft.db keeps a second process out.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640) //nolint:gosec // in the operator's own data folder
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return file, nil
}
