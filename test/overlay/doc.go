// Package overlay builds with files that differ from those on disk. It makes patched copies of Go files, and the file
// that `go build -overlay` reads. Tests use it for a Go runtime without chance, and for a peeklock of a next release.
package overlay
