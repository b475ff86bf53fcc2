package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Only a write that found no space may be repeated. A sync that fails with a full disk may have lost pages.
func TestOnlyAFailedWriteIsRetriable(t *testing.T) {
	t.Parallel()
	if IsRetriableWrite(syscall.ENOSPC) || !IsRetriableWrite(&fs.PathError{Op: "write", Err: syscall.ENOSPC}) ||
		IsRetriableWrite(&fs.PathError{Op: "sync", Err: syscall.ENOSPC}) || IsRetriableWrite(&fs.PathError{Op: "write", Err: syscall.EIO}) {
		t.Error("IsRetriableWrite")
	}
}

// Only space and file descriptors can be short for a time, and only a write may be repeated.
func TestShortages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err                            error
		noSpace, outOfFiles, retriable bool
	}{
		{err: &fs.PathError{Op: "write", Err: syscall.ENOSPC}, noSpace: true, retriable: true},
		{err: &fs.PathError{Op: "open", Err: syscall.EDQUOT}, noSpace: true},
		{err: &fs.PathError{Op: "open", Err: syscall.EMFILE}, outOfFiles: true},
		{err: &fs.PathError{Op: "open", Err: syscall.ENFILE}, outOfFiles: true},
		{err: &fs.PathError{Op: "write", Err: &fs.PathError{Op: "open", Err: syscall.EMFILE}}, outOfFiles: true, retriable: true},
		{err: &fs.PathError{Op: "write", Err: syscall.EIO}},
		{err: nil},
	} {
		if IsNoSpace(c.err) != c.noSpace || IsOutOfFiles(c.err) != c.outOfFiles ||
			IsShortage(c.err) != (c.noSpace || c.outOfFiles) || IsRetriableWrite(c.err) != c.retriable {
			t.Errorf("%v", c.err)
		}
	}
	if err := AsDamage(syscall.EMFILE); errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EMFILE) {
		t.Error(err)
	}
	if err := AsDamage(fs.ErrNotExist); !errors.Is(err, ErrDamaged) || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A folder is opened again while file descriptors are short, but not for good, and not after another error.
func TestFolderIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		short    time.Duration
		err      error // afterwards
		want     error
		took     time.Duration
		attempts int
	}{
		{took: 0, attempts: 1},
		{short: 3 * RetryInterval, took: 3 * RetryInterval, attempts: 4},
		{short: RetryInterval, err: fs.ErrNotExist, want: fs.ErrNotExist, took: RetryInterval, attempts: 2},
		{short: time.Hour, want: syscall.EMFILE, took: folderOpenWaitMax, attempts: 1 + int(folderOpenWaitMax/RetryInterval)},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, attempts := time.Now(), 0
			_, err := openPatiently(func() (*os.File, error) {
				attempts++
				if time.Since(began) < c.short {
					return nil, &fs.PathError{Op: "open", Err: syscall.EMFILE}
				}
				return nil, c.err
			})
			if took := time.Since(began); !errors.Is(err, c.want) || took != c.took || attempts != c.attempts {
				t.Errorf("%+v: %v after %s and %d attempts", c, err, took, attempts)
			}
		})
	}
}
