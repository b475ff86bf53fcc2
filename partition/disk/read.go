package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// readPageBytes is the unit in which ReadPages reads: no disk reads less.
const readPageBytes = 4096

// unreadableByte stands in for bytes that cannot be read. It is not zero, so that they are not taken for bytes that were never
// written.
const unreadableByte = 0xFF

// IsUnreadable reports whether the error of a read says that the device cannot read these bytes, or that a checksum of the file system
// does not fit them.
func IsUnreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG) || errors.Is(err, errCorruptFS)
}

// ReadAt fills b from an offset. Bytes that cannot be read are read once more, because such an error may pass. Then, or if the file
// is too short, the error wraps ErrDamaged. It does not if the file is closed.
func ReadAt(f io.ReaderAt, b []byte, at int64) error {
	_, err := f.ReadAt(b, at)
	if IsUnreadable(err) {
		_, err = f.ReadAt(b, at)
	}
	if err == nil || errors.Is(err, fs.ErrClosed) {
		return err
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(b), at, AsDamage(err))
}

// ReadPages fills b from an offset. If that fails, it reads page by page, and fills pages that cannot be read with bytes that no checksum
// fits. It returns the first error of those pages, nil if there are none.
func ReadPages(f io.ReaderAt, b []byte, at int64) (bad error) {
	if ReadAt(f, b, at) == nil {
		return nil
	}
	for len(b) > 0 {
		n := min(len(b), int(readPageBytes-at%readPageBytes))
		if err := ReadAt(f, b[:n], at); err != nil {
			for i := range b[:n] {
				b[i] = unreadableByte
			}
			if bad == nil {
				bad = err
			}
		}
		b, at = b[n:], at+int64(n)
	}
	return bad
}

// Reader returns a reader of a file from its current offset. Bytes that cannot be read are read once more; then the error wraps ErrDamaged.
func Reader(f io.Reader) io.Reader { return patientReader{f} }

type patientReader struct{ f io.Reader }

func (r patientReader) Read(b []byte) (int, error) {
	n, err := r.f.Read(b)
	if n == 0 && IsUnreadable(err) {
		n, err = r.f.Read(b)
	}
	if IsUnreadable(err) {
		err = AsDamage(err)
	}
	return n, err
}

// ReadFile reads a whole file. Bytes that cannot be read are read once more; then the error wraps ErrDamaged.
func ReadFile(files FS, path string) ([]byte, error) {
	content, err := files.ReadFile(path)
	if IsUnreadable(err) {
		content, err = files.ReadFile(path)
	}
	if IsUnreadable(err) {
		err = AsDamage(err)
	}
	return content, err
}
