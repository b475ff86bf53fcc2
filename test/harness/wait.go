package harness

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

const (
	pollInterval = 50 * time.Millisecond
	// Ports come from below the range that systems hand out to outgoing connections, so
	// that nobody takes one between its choice and the start of the member.
	portLow, portHigh = 15000, 32000
)

// Eventually calls try until it returns nil, and fails the test with its last error
// when the time is over.
func Eventually(t testing.TB, within time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		switch {
		case err == nil:
			return
		case last == nil || !errors.Is(err, context.DeadlineExceeded):
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, within, last)
		case <-tick.C:
		}
	}
}

// freeAddress returns a loopback address on which nobody listens, neither TCP nor UDP.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(portLow+rand.IntN(portHigh-portLow)))
		if free(t.Context(), address) {
			return address
		}
	}
	t.Fatal("no free port found")
	return ""
}

// free tries to listen on an address.
func free(ctx context.Context, address string) bool {
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = tcp.Close() }()
	udp, err := lc.ListenPacket(ctx, "udp", address)
	if err != nil {
		return false
	}
	_ = udp.Close()
	return true
}
