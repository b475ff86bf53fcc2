package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNotEmpty says that a place that was to be claimed holds something.
var ErrNotEmpty = errors.New("is not empty")

// Store is where one copy lies. Its calls are made one after the other, by one goroutine.
type Store interface {
	// Claim sees to it that the place can be used and holds nothing: ErrNotEmpty. Two that
	// claim one place at a time may both be let in; what they write together no manifest fits.
	Claim(ctx context.Context) error
	// Put makes an object of what write writes, instead of one that had its name. When write
	// or the place fails, or ctx ends, there is no new object. An error of write comes back as
	// it is, one of the place as an *Error, also to write.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get opens an object. One that is not there is fs.ErrNotExist, now or when it is read.
	// The reader ends with ctx.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// String is the place as it was named.
	String() string
}

// Error is a failure of a place. Doing the same again at once is of no use: what may pass by
// itself was tried again already.
type Error struct {
	Op   string // verb and object
	Err  error
	Hint string // what to do, or nothing
}

// Error is one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.Op, e.Err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Open gives the place that location names: s3://bucket/prefix, or a folder. Getenv reads the
// environment, where an object store's address and keys are; see [Variables]. It asks
// nobody but, for keys, the credentials file and what hands out roles. All its errors are for the one who
// named the place.
func Open(ctx context.Context, location string, getenv func(string) string) (Store, error) {
	scheme, rest, isURL := strings.Cut(location, "://")
	switch {
	case !isURL:
		return folder(location), nil
	case scheme != "s3":
		return nil, fmt.Errorf("%s is no place for a copy: give a folder, or s3://bucket/prefix", location)
	}
	name, prefix, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "?#@") || name == "" || strings.Contains(rest, "//") {
		return nil, fmt.Errorf("%s is no place for a copy: write it like s3://bucket/prefix, and nothing else", location)
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return newBucket(ctx, name, prefix, getenv)
}
