package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
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
