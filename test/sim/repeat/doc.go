// Command repeat writes patched copies of files of the Go runtime to a folder, and an overlay for `go build` that
// replaces the originals by them, so that a simulation on one processor runs the same way again:
//
//	go run ./test/sim/repeat FOLDER
//	go test -overlay FOLDER/overlay.json -tags repeat ./test/sim
//
// If PEEKLOCK_PLANTED names planted faults (test/planted), the overlay has these too; run the test with the same variable.
// It fails when the runtime is not the one that it knows.
package main
