package listen

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/coder/websocket"
)

// dialers returns functions that connect a client over each transport of AMQP.
func dialers(b *testing.B) map[string]func() net.Conn {
	files, trusted := development(b)
	r := openRig(b, func(c *Config) { c.TLS = load(b, files).TLS() })
	dial := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", r.addr)
		if err != nil {
			b.Fatal(err)
		}
		return conn
	}
	transport := &http.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	return map[string]func() net.Conn{
		"plain": dial,
		"tls":   func() net.Conn { return tls.Client(dial(), trusted) },
		"websocket": func() net.Conn {
			ws, _, err := websocket.Dial(b.Context(), "ws://"+r.addr+webSocketPath, &websocket.DialOptions{ //nolint:bodyclose // the connection is the body
				Subprotocols: []string{subprotocolCloud}, HTTPClient: &http.Client{Transport: transport},
			})
			if err != nil {
				b.Fatal(err)
			}
			return websocket.NetConn(b.Context(), ws, websocket.MessageBinary)
		},
	}
}

// BenchmarkConnect measures a connection until the server has sent its first bytes, and its close.
func BenchmarkConnect(b *testing.B) {
	for name, dial := range dialers(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				conn := dial()
				exchange(b, conn, "AMQP", "amqp:AMQP")
				_ = conn.Close()
			}
		})
	}
}

// BenchmarkStream sends 32 KiB to the server and back.
func BenchmarkStream(b *testing.B) {
	for name, dial := range dialers(b) {
		b.Run(name, func(b *testing.B) {
			conn := dial()
			defer conn.Close()
			exchange(b, conn, "AMQP", "amqp:AMQP")
			buffer := make([]byte, 32<<10)
			b.SetBytes(int64(len(buffer)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(buffer); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(conn, buffer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
