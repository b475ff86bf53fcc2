package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"syscall"
	"time"
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

// folderOpenWaitMax is how long syncFolder waits for a file descriptor.
const folderOpenWaitMax = 5 * time.Second

// syncFolder makes created and removed names in dir durable. It waits for a file descriptor, because some
// callers take its error for a failed sync and stop.
func syncFolder(dir string) error {
	d, err := openPatiently(func() (*os.File, error) { return os.Open(dir) }) //nolint:gosec // a path of our own making
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	err = d.Sync()
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

// openPatiently opens again while file descriptors are short, for up to folderOpenWaitMax.
func openPatiently(open func() (*os.File, error)) (*os.File, error) {
	for began := time.Now(); ; <-time.After(RetryInterval) {
		f, err := open()
		if !IsOutOfFiles(err) || time.Since(began) >= folderOpenWaitMax {
			return f, err
		}
	}
}

// IsRetriableWrite reports whether a write has failed for a shortage and changed nothing, so that it can be
// tried again. After any other error, a failed sync above all, the content of the disk is unknown.
func IsRetriableWrite(err error) bool {
	var p *fs.PathError
	return IsShortage(err) && errors.As(err, &p) && p.Op == "write"
}

// IsShortage reports whether something is short that may be available again later: space or file descriptors.
func IsShortage(err error) bool { return IsNoSpace(err) || IsOutOfFiles(err) }

// IsNoSpace reports whether a disk or a quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsOutOfFiles reports whether the process (EMFILE) or the system (ENFILE) had no file descriptor left to open a file.
// Nothing has changed then: writes and syncs of open files need none.
func IsOutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// AsDamage adds ErrDamaged to the error of a stored file that could not be opened or read. It does not if the error
// says nothing about the file: file descriptors are short.
func AsDamage(err error) error {
	if IsOutOfFiles(err) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, ErrDamaged)
}

// RetryInterval is the time between two tries of a write that has to wait for space or for a file descriptor.
const RetryInterval = 200 * time.Millisecond
