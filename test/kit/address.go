package kit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// Ports are below the range that operating systems assign to outgoing connections and to port 0, so that
// nothing takes a port between its choice and the start of the member, nor while the member is down. The ports
// of test/harness are from the same range.
const portLow, portHigh = 15000, 32000

// nextPort counts through the range, so that no two tests of this process get the same port.
var nextPort = func() *atomic.Uint32 { //nolint:gochecknoglobals // as many as there are ports on this machine
	next := new(atomic.Uint32)
	next.Store(rand.Uint32N(portHigh - portLow)) // processes that run at the same time begin elsewhere
	return next
}()

// FreeAddress returns a loopback address that is free for TCP and UDP.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range portHigh - portLow {
		port := portLow + nextPort.Add(1)%(portHigh-portLow)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		stream, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		packets, err := net.ListenPacket("udp", address)
		_ = stream.Close()
		if err == nil {
			_ = packets.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
