// Command planted shows that the tests of the project find faults. It builds Peeklock with all faults of
// test/planted/faults, and for each of them runs the test that should find it twice: while no fault is active, the test
// must pass; while the fault is active, it must fail. It prints how long the test took to find each fault.
//
//	go run ./test/planted                  all faults
//	go run ./test/planted -part 2 -of 3    the second third of them
//	go run ./test/planted skip-log-sync    the named faults
//	go run ./test/planted -write FOLDER    only write the overlay to the folder and print its path, for `go test -overlay`
//
// It exits with 1 when a fault was not found, or a test failed without a fault.
package main
