package main

import (
	"net"
	"strconv"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// Another connection can take a port of the range for outgoing connections before gossip listens on it; that
// happened on a busy machine, and dev did not start.
func TestGossipPortIsOutsideTheEphemeralRange(t *testing.T) {
	t.Parallel()
	const lowest = 32768 // of the range on Linux; 49152 on other systems
	for range 100 {
		address := kit.Must(freeGossipPort(t.Context()))(t)
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || port < 1024 || port >= lowest {
			t.Fatalf("%s, %v", address, err)
		}
	}
}
