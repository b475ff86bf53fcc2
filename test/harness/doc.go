// Package harness runs real peeklock processes for the tests: it builds the binary once
// per test process, starts members on free loopback ports with folders of their own,
// waits until they serve, and kills, pauses and restarts them one by one. When a test
// fails, it shows the end of each member's log.
//
// It uses a member only as its users do: flags, ports, the HTTP control API, signals.
// It imports no types that members and tests would share, so an error in such a type cannot hide
// itself.
package harness
