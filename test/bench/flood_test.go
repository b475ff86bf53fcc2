package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
)

// flood is the number of idle connections, all from one address to one member.
const flood = 10_000

// BenchmarkFlood opens 10,000 connections to one member that stay idle after the open. It reports
// the resident memory per connection, and the time of confirmations for steady senders at that
// member and at another one: before, while the connections arrive, and with all of them open. The
// connections do not authenticate, so the member closes them after a minute.
func BenchmarkFlood(b *testing.B) {
	if testing.Short() {
		b.Skip("takes half a minute with three processes: left out by -short")
	}
	const watched = 10 * time.Second
	for range b.N {
		c := harness.Start(b, harness.Options{Args: []string{"--connections-per-address", "0"}})
		c.CreateQueue(b, "steady", harness.Settings{})
		at, other := c.Members[0], c.Members[1]
		ctx, cancel := context.WithCancel(b.Context())
		senders := map[string]*steady{"here": newSteady(b, at, "steady"), "elsewhere": newSteady(b, other, "steady")}
		ended := make(chan error, len(senders))
		for _, sender := range senders {
			go func() { ended <- sender.run(ctx) }()
		}
		begin := time.Now()
		<-time.After(watched)
		calm := at.MemoryBytes()
		flooded := time.Now()
		conns := openConnections(b, at.AMQP)
		full := time.Now()
		<-time.After(watched)
		b.ReportMetric(float64(at.MemoryBytes()-calm)/flood, "B/conn")
		b.ReportMetric(full.Sub(flooded).Seconds(), "pour-s")
		for name, sender := range senders {
			sender.report(b, name, "before", begin, flooded)
			sender.report(b, name, "meanwhile", flooded, full)
			sender.report(b, name, "after", full, time.Now())
		}
		cancel()
		for range senders {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				b.Fatal(err)
			}
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	b.ReportMetric(0, "ns/op") // the duration of a run has no meaning
}

// openConnections opens the connections: SASL ANONYMOUS, open, and the answer to it.
func openConnections(b *testing.B, address string) []net.Conn {
	b.Helper()
	hello := []byte("AMQP\x03\x01\x00\x00")
	hello = wire.AppendFrame(hello, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "ANONYMOUS"})
	hello = append(hello, "AMQP\x00\x01\x00\x00"...)
	hello = wire.AppendFrame(hello, wire.FrameAMQP, 0, &wire.Open{ContainerID: "idle"})
	conns := make([]net.Conn, 0, flood)
	for i := range flood {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_, err = conn.Write(hello)
		}
		if err == nil {
			err = opened(conn)
		}
		if err != nil {
			b.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
	}
	return conns
}

// opened reads frames up to the answer to the open.
func opened(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	r := wire.NewReader(conn, 65536)
	for seen := 0; seen < 2; { // the headers of SASL and AMQP
		if _, err := r.ReadHeader(); err != nil {
			return fmt.Errorf("header: %w", err)
		}
		for seen++; ; {
			frame, err := r.ReadFrame()
			if err != nil {
				return fmt.Errorf("frame: %w", err)
			}
			if _, outcome := frame.Body.(*wire.SASLOutcome); outcome {
				break
			}
			if _, open := frame.Body.(*wire.Open); open {
				return nil
			}
		}
	}
	return io.ErrUnexpectedEOF
}
