package objects

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// folder is a directory on a disk. An object is a file with its name, readable by the owner only. While it is
// written, it has another name.
type folder string

// partialSuffix is the suffix of the name of a file that is being written.
const partialSuffix = ".part"

func (f folder) String() string { return string(f) }

// Claim creates the directory, or checks that it is empty.
func (f folder) Claim(context.Context) error {
	names, err := os.ReadDir(string(f))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(string(f), 0o700)
	case err == nil && len(names) > 0:
		err = ErrNotEmpty
	}
	return f.wrapError(err)
}

// Put writes a file, syncs it, and renames it to its name.
func (f folder) Put(_ context.Context, name string, write func(io.Writer) error) error {
	path := filepath.Join(string(f), name)
	file, err := os.OpenFile(path+partialSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // in the folder that was named
	if err != nil {
		return f.wrapError(err)
	}
	defer func() { _ = file.Close() }() // closed earlier where the error matters
	if err := write(fileWriter{f, file}); err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return f.wrapError(err)
	}
	return f.wrapError(os.Rename(path+partialSuffix, path))
}

// Get opens a file.
func (f folder) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := os.Open(filepath.Join(string(f), name)) //nolint:gosec // in the folder that was named
	if err != nil {
		return nil, f.wrapError(err)
	}
	return fileReader{ctx, file}, nil
}

// wrapError returns an *Error; its cause contains the path.
func (f folder) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: string(f), Err: err}
}

// fileWriter distinguishes errors of the disk from those of the source.
type fileWriter struct {
	folder folder
	file   *os.File
}

func (w fileWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	return n, w.folder.wrapError(err)
}

// fileReader is a file whose reads end with a context.
type fileReader struct {
	ctx  context.Context //nolint:containedctx // it lives as long as the reading
	file *os.File
}

func (r fileReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}

func (r fileReader) Close() error { return r.file.Close() }
