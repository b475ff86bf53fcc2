// Package arch holds the tests of the architecture: which package may import which, which package
// may use each external library, what the state machine may not do, how long a file may
// be, and that the functions, tests, files and headings that documents name exist.
//
// The linters check a part of this too (depguard). These tests need only Go, so the rules also
// apply when a developer runs nothing but `go test ./...`.
package arch
