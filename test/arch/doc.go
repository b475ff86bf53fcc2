// Package arch holds the tests that keep the house in shape: which room may import
// which, where each outside library lives, what the machine may not do, how long a
// file may grow, and that the documents name things that exist: functions, tests, files
// and headings.
//
// The linters check a part of this too (depguard). The tests here need nothing but Go,
// so the law holds for whoever runs `go test ./...` alone.
package arch
