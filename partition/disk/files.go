package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The modes of data files and folders: only the member reads them.
const (
	FileMode   fs.FileMode = 0o600
	FolderMode fs.FileMode = 0o700
)

// ErrDamaged means that stored bytes are damaged. The replica that reads them stops.
var ErrDamaged = errors.New("stored bytes are damaged")

// Castagnoli is the table of CRC-32C, which the processor computes.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // read only

// syncFolder makes created and removed names in dir durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // a path of our own making
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	err = d.Sync()
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

// WriteSynced writes a small file and makes the file and its name durable. It truncates a file that exists.
func WriteSynced(files FS, path string, content []byte) error {
	if err := WriteFile(files, path, content, FileMode); err != nil {
		return err
	}
	return files.SyncFolder(filepath.Dir(path))
}

// WriteFile is WriteSynced without making the name durable.
func WriteFile(files FS, path string, content []byte, mode fs.FileMode) error {
	f, err := files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// IsRetriableWrite reports whether a write has failed for lack of space and changed nothing, so that it can be
// tried again. After any other error, a failed sync above all, the content of the disk is unknown.
func IsRetriableWrite(err error) bool {
	var p *fs.PathError
	return IsNoSpace(err) && errors.As(err, &p) && p.Op == "write"
}

// IsNoSpace reports whether a disk or a quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
