package listen

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

const upgradeLines = "GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"

// upgraded returns the client's end of a connection that was upgraded, after its response was read, and the stream inside.
func upgraded(t *testing.T) (client, stream net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	answered := make(chan error, 1)
	go func() {
		if _, err := io.WriteString(client, upgradeLines); err != nil {
			answered <- err
			return
		}
		response, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err == nil {
			_ = response.Body.Close()
		}
		answered <- err
	}()
	stream = kit.Must(upgrade(t.Context(), server, nil, false))(t)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	return client, stream
}

// A peer whose fragments carry a byte each, or that sends pings, is read later; one that sends the smallest frames of AMQP
// is not.
func TestMessagesWithoutPayloadAreReadLater(t *testing.T) {
	t.Parallel()
	const seconds = 5
	const most = emptyBytesBurst + seconds*emptyBytesPerSecond
	for name, c := range map[string]struct {
		fragment string
		empty    int // bytes of a fragment that count
		want     time.Duration
	}{
		"fragments of one byte": {"\x82\x81\x00\x00\x00\x00A", 5, seconds * time.Second},
		"empty messages":        {"\x82\x80\x00\x00\x00\x00", 6, seconds * time.Second},
		"pings":                 {"\x89\x80\x00\x00\x00\x00", 6, seconds * time.Second},
		"smallest frames":       {"\x82\x88\x00\x00\x00\x00\x00\x00\x00\x08\x02\x00\x00\x00", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, stream := upgraded(t)
				go func() { _, _ = io.Copy(io.Discard, client) }()
				go func() { _, _ = io.Copy(io.Discard, stream) }()
				began := time.Now()
				for range most / c.empty {
					kit.Must(io.WriteString(client, c.fragment))(t)
				}
				if d := time.Since(began); d < c.want*9/10 || d > c.want*11/10 {
					t.Errorf("the fragments took %v, want about %v", d, c.want)
				}
				if err := stream.Close(); err != nil {
					t.Error(err)
				}
				_ = client.Close()
			})
		})
	}
}

// A large message that arrives in small segments is read without delay, whatever buffer the reader has.
func TestLargePayloadIsNotPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, stream := upgraded(t)
		const payload, segment = 1 << 20, 1000
		message := append([]byte("\x82\xff\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00"), make([]byte, payload)...)
		go func() {
			for part := range slices.Chunk(message, segment) {
				_, _ = client.Write(part)
			}
		}()
		began := time.Now()
		kit.Must(io.ReadFull(stream, make([]byte, payload)))(t)
		if d := time.Since(began); d > 0 {
			t.Errorf("reading took %v", d)
		}
		go func() { _, _ = io.Copy(io.Discard, client) }()
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
		_ = client.Close()
	})
}

// A connection that is read later can be closed at once.
func TestPacedConnectionClosesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, stream := upgraded(t)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		stream.(*webSocket).transport.empty = 1000 * emptyBytesPerSecond
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = io.Copy(io.Discard, stream) }()
		kit.Must(io.WriteString(client, "\x89\x80\x00\x00\x00\x00"))(t)
		synctest.Wait()
		began := time.Now()
		_ = stream.Close()
		<-ended
		if d := time.Since(began); d > 2*closeFrameTimeMax {
			t.Errorf("the connection was closed after %v", d)
		}
		_ = client.Close()
	})
}
