package main

import (
	"net"
	"strconv"
	"testing"
)

// A port that systems hand out to connections that go out can be gone before gossip listens
// on it; on a busy machine it was, and dev did not start.
func TestGossipPortIsOutsideTheEphemeralRange(t *testing.T) {
	t.Parallel()
	const lowest = 32768 // of those handed out; on other systems than Linux 49152
	for range 100 {
		address, err := freeGossipPort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || port < 1024 || port >= lowest {
			t.Fatalf("%s, %v", address, err)
		}
	}
}
