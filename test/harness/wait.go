package harness

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// convergeWithin bounds waiting for elections and for automatic changes of the cluster.
const convergeWithin = 120 * time.Second

const (
	pollInterval = 50 * time.Millisecond
	// Ports are below the range that systems use for outgoing connections, so
	// that no connection gets one between its choice and the start of the member.
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

// Progress calls try until it returns nil, and fails the test with its last error when the returned count
// has not grown for the duration standstill. The total duration is not limited.
func Progress(t testing.TB, standstill time.Duration, what string, try func(context.Context) (int, error)) {
	t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	at, most := time.Now(), math.MinInt
	for {
		ctx, cancel := context.WithTimeout(t.Context(), standstill)
		n, err := try(ctx)
		cancel()
		switch {
		case err == nil:
			return
		case n > most:
			at, most = time.Now(), n
		case time.Since(at) > standstill:
			t.Fatalf("%s: no progress for %v: %v", what, standstill, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// reserved are the ports that this process has assigned. A killed member returns to its ports, on which
// no process listens meanwhile.
var reserved struct { //nolint:gochecknoglobals // as many as there are ports on this machine
	sync.Mutex
	ports map[int]bool
}

// freeAddresses returns n loopback addresses that are free for TCP and UDP and were not returned
// before. Parallel test processes use different ranges: otherwise one could choose an address that
// another has chosen, or that belongs to its killed member.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.ports == nil {
		reserved.ports = make(map[int]bool)
	}
	const ranges = 10
	const size = (portHigh - portLow) / ranges
	low := portLow + os.Getpid()%ranges*size
	var found []string
	for range 10 * size {
		port := low + rand.IntN(size)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if !reserved.ports[port] && isFree(t.Context(), address) {
			reserved.ports[port] = true
			found = append(found, address)
		}
		if len(found) == n {
			return found
		}
	}
	t.Fatal("not enough free ports found")
	return nil
}

// isFree tries to listen on an address.
func isFree(ctx context.Context, address string) bool {
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
