package disk

import (
	"errors"
	"fmt"
	"os"
)

// zerosBytes is how much a file system that cannot reserve space writes at once.
const zerosBytes = 256 << 10

// Allocate creates a file for which the file system has reserved size bytes.
func Allocate(files FS, path string, size int64) error {
	f, err := files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, FileMode)
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	if file, ok := f.(*os.File); ok {
		err = reserveBytes(file, size)
	} else {
		err = writeZeros(f, size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("allocate %s: %w", path, errors.Join(err, files.Remove(path)))
	}
	return nil
}

// writeZeros is for file systems that cannot reserve space.
func writeZeros(f File, size int64) error {
	zeros := make([]byte, min(size, zerosBytes))
	for size > 0 {
		n, err := f.Write(zeros[:min(size, zerosBytes)])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return f.Sync()
}
