// Package harness runs real peeklock processes for the tests: it builds the binary once
// per test process, starts members on free loopback ports with folders of their own,
// waits until they serve, and kills, pauses and restarts them one by one. When a test
// fails, it shows the end of each member's log.
//
// It knows a member only as its users do: flags, ports, the HTTP control API, signals.
// Nothing of the other rooms is imported, so a test that uses it cannot be fooled by
// a type that both sides share.
package harness
