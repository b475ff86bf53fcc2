// Package foreign runs a suite of another language against three members. Such a suite
// needs tools that a Go developer may not have, and packages from the network, so a plain
// `go test ./...` skips it and says so. The script `run` beside the suite installs the
// tools and sets PEEKLOCK_CONFORMANCE to "require": then a missing tool is a failure. With
// any other value the suite runs if its tools are present.
package foreign
