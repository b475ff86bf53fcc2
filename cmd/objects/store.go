package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNotEmpty reports that a store to be claimed is not empty.
var ErrNotEmpty = errors.New("is not empty")

// Store is a directory or a prefix in a bucket that holds one backup. Its methods must be called one after
// another.
type Store interface {
	// Claim checks that the store is usable and empty; otherwise it returns an error, ErrNotEmpty in the latter
	// case. Two callers that claim one store at the same time may both succeed; no manifest matches what they
	// write together.
	Claim(ctx context.Context) error
	// Put creates an object from the bytes that write writes, and replaces an object of the same name. If write or
	// the store fails, or ctx ends, there is no new object. Errors of write are returned unchanged. Errors of the
	// store are returned as an *Error, also to write.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get opens an object. If the object is missing, Get or the first read returns fs.ErrNotExist. Reads end with
	// ctx.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// String returns the location that Open was given.
	String() string
}

// Error is a failure of a store. An immediate retry does not help: the store has already retried temporary
// failures.
type Error struct {
	Op   string // verb and object
	Err  error
	Hint string // what to do, or ""
}

// Error returns one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.Op, e.Err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Open opens the store at a location: s3://bucket/prefix, or a directory. getenv reads the environment, which has
// the address and the keys of an object store; see [EnvironmentHelp]. Open does not contact the store; for keys,
// it reads the credentials file and requests them from the service that assigns roles. All its errors are usage
// errors.
func Open(ctx context.Context, location string, getenv func(string) string) (Store, error) {
	scheme, rest, isURL := strings.Cut(location, "://")
	switch {
	case !isURL:
		return folder(location), nil
	case scheme != "s3":
		return nil, fmt.Errorf("%s is not a location for backups: give a folder, or s3://bucket/prefix", location)
	}
	name, prefix, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "?#@") || name == "" || strings.Contains(rest, "//") {
		return nil, fmt.Errorf("%s is not a location for backups: write it like s3://bucket/prefix, and nothing else", location)
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return newBucket(ctx, name, prefix, getenv)
}
