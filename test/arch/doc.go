// Package arch holds the tests of the architecture that no linter can do: which package may import which, which
// package may use each external library, what the state machine may not do, which structs need golden files, and that
// the functions, tests, files and headings that documents name exist.
//
// These tests need only Go, so the rules also apply when a developer runs nothing but `go test ./...`. The linters
// (.golangci.yml) check the other rules: depguard the imports of the pure packages from the standard library, musttag
// that structs have json tags, sloglint that log messages are constant, forbidigo that data passes through disk.FS, and
// funlen and revive the sizes of functions and files.
package arch
