// Command planted shows that the checks of the project find faults. For each planted fault (package fsm/planted)
// it runs the test that should find it twice, built with the tag "planted": without a fault the test must pass,
// with the fault it must fail. It prints how long the test took to find each fault.
//
//	go run ./test/planted                  all faults
//	go run ./test/planted -part 2 -of 3    the second third of them
//	go run ./test/planted skip-log-sync    the named faults
//
// It exits with 1 when a fault was not found, or a test failed without a fault.
package main
