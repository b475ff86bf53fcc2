package listen

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// idleConnections is how many connections of each kind the benchmark opens; each needs two descriptors.
const idleConnections = 2000

// BenchmarkIdle measures the memory of idle connections behind the port: heap and stacks of the socket, of its
// wrappers, and of one goroutine that waits in Read. The client's end costs only a socket: everything else that it
// needed to connect is released.
func BenchmarkIdle(b *testing.B) {
	files, trusted := development(b)
	for _, kind := range []string{"plain", "tls", "websocket"} {
		b.Run(kind, func(b *testing.B) {
			config := DefaultConfig()
			config.Listeners, config.TLS = []net.Listener{listenLoopback(b)}, load(b, files).TLS()
			p, err := Open(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			var waiting sync.WaitGroup
			before := inUse()
			var clients, served []net.Conn
			for range idleConnections {
				client, server := p.idle(b, kind, trusted, &waiting)
				clients, served = append(clients, client), append(served, server)
			}
			for b.Loop() {
				b.ReportMetric((inUse()-before)/idleConnections, "B/conn")
			}
			for i := range clients {
				_, _ = clients[i].Close(), served[i].Close()
			}
			waiting.Wait()
			if err := p.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// idle connects over one of the transports, sends the first bytes of AMQP, and nothing more.
func (p *Port) idle(b *testing.B, kind string, trusted *tls.Config, waiting *sync.WaitGroup) (client, server net.Conn) {
	b.Helper()
	client, err := new(net.Dialer).DialContext(b.Context(), "tcp", p.AMQP().Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	say := "AMQP"
	inside := client
	switch kind {
	case "tls":
		inside = tls.Client(client, trusted)
	case "websocket":
		say = "\x82\x84\x00\x00\x00\x00AMQP"
		_, err = io.WriteString(client, "GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n")
		if err == nil {
			var answer *http.Response
			if answer, err = http.ReadResponse(bufio.NewReader(client), nil); err == nil {
				err = answer.Body.Close()
			}
		}
	}
	if err == nil {
		_, err = io.WriteString(inside, say)
	}
	if err != nil {
		b.Fatal(err)
	}
	if server, err = p.AMQP().Accept(); err != nil {
		b.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(server, first); err != nil || string(first) != "AMQP" {
		b.Fatalf("%q, %v", first, err)
	}
	waiting.Go(func() { _, _ = server.Read(first) })
	return client, server
}

// inUse returns heap and stacks in bytes, without garbage.
func inUse() float64 {
	var m runtime.MemStats
	for range 3 { // pools need two cycles, and stacks shrink during one
		debug.FreeOSMemory()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
