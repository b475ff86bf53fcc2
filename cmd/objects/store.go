package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNotEmpty reports that a store that was to be claimed holds something.
var ErrNotEmpty = errors.New("is not empty")

// Store is a directory or a prefix in a bucket that holds one backup. Its methods are called one after the other, by one
// goroutine.
type Store interface {
	// Claim makes sure that the store can be used and is empty; it returns ErrNotEmpty otherwise. Two callers that claim one
	// store at the same time may both succeed; no manifest matches what they write together.
	Claim(ctx context.Context) error
	// Put makes an object of what write writes, and replaces an object of the same name. When write or the store fails, or
	// ctx ends, there is no new object. Errors of write are returned unchanged, errors of the store as an *Error, also to
	// write.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get opens an object. A missing object is fs.ErrNotExist, now or when it is read. The reader ends with ctx.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// String returns the location that Open was given.
	String() string
}

// Error is a failure of a store. Retrying at once is of no use: the store has retried what may pass by itself.
type Error struct {
	Op   string // verb and object
	Err  error
	Hint string // what to do, or nothing
}

// Error returns one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.Op, e.Err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Open opens the store at a location: s3://bucket/prefix, or a directory. getenv reads the environment, which has the
// address and the keys of an object store; see [EnvironmentHelp]. Open contacts no store; for keys it reads the credentials file
// and asks the service that hands out roles. All its errors are mistakes of the user.
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
