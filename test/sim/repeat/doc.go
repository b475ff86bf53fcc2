// Command repeat writes patched copies of files of the Go runtime to a folder, and an overlay for `go build` that
// replaces the originals by them, so that a simulation on one processor runs the same way again:
//
//	go run ./test/sim/repeat FOLDER
//	go test -overlay FOLDER/overlay.json -tags repeat ./test/sim
//
// It fails when the runtime is not the one that it knows.
package main
