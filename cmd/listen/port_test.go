package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/test/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a port on loopback with two servers behind it that send their name ("amqp:" or "http:") and everything
// they read.
type rig struct {
	port *Port
	addr string
}

func listenLoopback(t testing.TB) net.Listener {
	t.Helper()
	l := kit.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	return l
}

func openRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	config := DefaultConfig()
	config.Listeners = []net.Listener{listenLoopback(t)}
	if change != nil {
		change(&config)
	}
	p := kit.Must(Open(t.Context(), config))(t)
	var servers sync.WaitGroup
	for name, l := range map[string]net.Listener{"amqp:": p.AMQP(), "http:": p.HTTP()} {
		servers.Go(func() { echo(&servers, l, name) })
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		servers.Wait()
	})
	return &rig{p, p.AMQP().Addr().String()}
}

// echo sends its name and repeats what it reads until the client has closed its direction.
func echo(servers *sync.WaitGroup, l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		servers.Go(func() {
			defer conn.Close()
			if _, err := io.WriteString(conn, name); err == nil {
				_, _ = io.Copy(conn, conn)
			}
		})
	}
}

func (r *rig) dial(t testing.TB) *net.TCPConn {
	t.Helper()
	conn := kit.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr))(t)
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

// exchange sends say and reads as many bytes as want has.
func exchange(t testing.TB, conn io.ReadWriter, say, want string) {
	t.Helper()
	kit.Must(io.WriteString(conn, say))(t)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v; want %q", got[:n], err, want)
	}
}

// ended fails unless the other side closes the connection; it returns the bytes received before.
func ended(t testing.TB, conn net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(conn)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Fatal("the connection is still open")
	}
	return string(b)
}

func TestClassifyRecognizesEveryProtocol(t *testing.T) {
	t.Parallel()
	long := "GET /$servicebus/websocket?" + strings.Repeat("x", firstBytesMax)
	for first, want := range map[string]protocol{
		"":                                      protocolUnknown,
		"A":                                     protocolUnknown,
		"AMQ":                                   protocolUnknown,
		"AMQP":                                  protocolAMQP,
		"AMQP\x03\x01\x00\x00":                  protocolAMQP,
		"AMQX":                                  protocolHTTP,
		"\x16":                                  protocolUnknown,
		"\x16\x03":                              protocolTLS,
		"\x16\x03\x01\x02\x00\x01":              protocolTLS,
		"\x16\x04":                              protocolAMQP, // the gateway answers with the version that it supports
		"\x00\x00\x00\x08\x02\x00\x00\x00":      protocolAMQP,
		"hello":                                 protocolAMQP,
		"PUT /orders HTTP/1.1":                  protocolHTTP,
		"P":                                     protocolUnknown,
		"PO":                                    protocolHTTP,
		"PROX":                                  protocolUnknown,
		"PROXY":                                 protocolProxy,
		"PROPFIND":                              protocolHTTP,
		"\r\n\r\n\x00\r\nQUIT":                  protocolUnknown,
		"\r\n\r\n\x00\r\nQUIT\n":                protocolProxy,
		"\r\nAMQP":                              protocolAMQP,
		"G":                                     protocolUnknown,
		"GET ":                                  protocolUnknown,
		"GET /":                                 protocolUnknown,
		"GET /h":                                protocolHTTP,
		"GET / ":                                protocolHTTP,
		"GET /\r\n":                             protocolHTTP,
		"GET /$servicebus/websocke":             protocolUnknown,
		"GET /$servicebus/websocket":            protocolUnknown,
		"GET /$servicebus/websocket HTTP/1.1":   protocolWebSocket,
		"GET /$servicebus/websocket/ HTTP/1.1":  protocolWebSocket, // .NET
		"GET /$servicebus/websocket?a=b HTTP/1": protocolWebSocket,
		"GET /%24servicebus/websocket HTTP/1.1": protocolWebSocket,
		"GET /$ServiceBus/WebSocket HTTP/1.1":   protocolWebSocket,
		"GET /$servicebus/websockets HTTP/1.1":  protocolHTTP,
		"GET /$servicebus HTTP/1.1":             protocolHTTP,
		"GET https://host:443/$servicebus/websocket HTTP/1.1": protocolWebSocket, // Java
		"GET https://host/orders HTTP/1.1":                    protocolHTTP,
		"GET https://host HTTP/1.1":                           protocolHTTP,
		"GET https://ho":                                      protocolUnknown,
		long[:firstBytesMax-1]:                                protocolUnknown,
		long[:firstBytesMax]:                                  protocolHTTP,
	} {
		if got := classify([]byte(first)); got != want {
			t.Errorf("%.60q: %d, want %d", first, got, want)
		}
	}
}

// Whatever the first bytes are, and however they are divided into packets: the protocol is decided in bounded
// memory, is never reconsidered, and no byte is lost.
func FuzzFirstBytes(f *testing.F) {
	for _, seed := range []string{
		"AMQP\x00\x01\x00\x00", "\x16\x03\x01", "GET /v1/queues HTTP/1.1\r\n\r\n", "GET /$servicebus/websocket HTTP/1.1\r\n", "GET x://", "GE", "A", "\x00",
		"GET http://a/%24servicebus/websocket/?x HTTP/1.1", "POST / HTTP/1.1\r\n\r\n", lineTCP4, "\r\n\r\n\x00\r\nQUIT\n!",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(7))
	}
	f.Fuzz(func(t *testing.T, sent []byte, step uint8) {
		first := sent[:min(len(sent), firstBytesMax)]
		for n := range len(first) {
			if early, late := classify(first[:n]), classify(first); early != protocolUnknown && early != late {
				t.Fatalf("%q was %d, %q is %d", first[:n], early, first, late)
			}
		}
		if len(first) == firstBytesMax && classify(first) == protocolUnknown {
			t.Fatalf("%q is undecided", first)
		}
		kind, conn, err := peekProtocol(&script{left: bytes.Clone(sent), step: int(step%64) + 1})
		if err != nil {
			if kind != protocolUnknown || len(sent) >= firstBytesMax || classify(sent) != protocolUnknown {
				t.Fatalf("%q: %d, %v", sent, kind, err)
			}
			return
		}
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("read %q, %v; sent %q", got, err, sent)
		}
	})
}

// script is a connection whose reads return the sent bytes in packets of step bytes.
type script struct {
	net.Conn
	left []byte
	step int
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.left[:min(s.step, len(s.left))])
	s.left = s.left[n:]
	return n, nil
}

// Clients send byte by byte or all at once, unencrypted or in TLS.
func TestConnectionsReachTheServerOfTheirProtocol(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	r := openRig(t, func(c *Config) { c.TLS = load(t, files).TLS() })
	for _, secure := range []bool{false, true} {
		for say, want := range map[string]string{
			"AMQP\x03\x01\x00\x00more":      "amqp:AMQP\x03\x01\x00\x00more",
			"GET /v1/status HTTP/1.1\r\n":   "http:GET /v1/status HTTP/1.1\r\n",
			"DELETE /orders HTTP/1.1\r\n":   "http:DELETE /orders HTTP/1.1\r\n",
			"GET /$servicebus HTTP/1.1\r\n": "http:GET /$servicebus HTTP/1.1\r\n",
			"\x01\x02\x03\x04":              "amqp:\x01\x02\x03\x04",
		} {
			for _, step := range []int{1, 1000} {
				var conn net.Conn = r.dial(t)
				if secure {
					conn = tls.Client(conn, trusted)
				}
				for left := say; left != ""; {
					n := min(step, len(left))
					kit.Must(io.WriteString(conn, left[:n]))(t)
					left = left[n:]
				}
				exchange(t, conn, "", want)
				exchange(t, conn, "and on", "and on")
			}
		}
	}
	kit.Eventually(t, "no pending connections", func() bool { return r.port.Pending() == 0 })
}

// Connections that send nothing, or incomplete first bytes, are closed after the timeout in every state. The test
// runs in a bubble: on sockets, a machine that is busy for a third of a second would make a client too slow.
func TestPendingConnectionsTimeOut(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	now := time.Now() // for the certificates: bubbles begin in another year
	trusted.Time = func() time.Time { return now }
	synctest.Test(t, func(t *testing.T) {
		const within = 300 * time.Millisecond
		pipes := kit.NewPipeListener()
		r := openRig(t, func(c *Config) {
			c.Listeners = []net.Listener{pipes}
			c.TLS = load(t, files).TLS()
			c.PendingTimeout = within
		})
		known := pipes.Dial(t, nil)
		exchange(t, known, "AMQP", "amqp:AMQP")
		begin := time.Now()
		var silent []net.Conn
		for _, say := range []string{"", "A", "\x16\x03\x01", "GET /$servicebus/web", "GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\n"} {
			conn := pipes.Dial(t, nil)
			exchange(t, conn, say, "")
			silent = append(silent, conn)
		}
		inside := tls.Client(pipes.Dial(t, nil), trusted)
		exchange(t, inside, "AM", "") // the handshake, and then half of the protocol name
		silent = append(silent, inside)
		synctest.Wait()
		if n := r.port.Pending(); n != len(silent) {
			t.Errorf("%d pending connections, want %d", n, len(silent))
		}
		time.Sleep(within - 1) //nolint:forbidigo // of the bubble's clock
		synctest.Wait()
		if n := r.port.Pending(); n != len(silent) {
			t.Errorf("%d pending connections before the time, want %d", n, len(silent))
		}
		for _, conn := range silent {
			ended(t, conn)
		}
		synctest.Wait()
		if n := r.port.Pending(); n != 0 {
			t.Errorf("%d pending connections after the time", n)
		}
		// The port waits a moment longer for clients that can read a reason.
		if took := time.Since(begin); took < within || took > within+refusalTimeMax {
			t.Errorf("closed after %s, want %s", took, within)
		}
		exchange(t, pipes.Dial(t, nil), "AMQP", "amqp:AMQP")
		exchange(t, known, "later", "later") // a delivered connection has no timeout
	})
}

// Many silent connections do not lock out a client that sends, and at most PendingMax connections are pending.
func TestPendingConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	r := openRig(t, func(c *Config) { c.PendingMax = 3 })
	var silent []net.Conn
	for i := range 5 {
		silent = append(silent, r.dial(t))
		kit.Eventually(t, "accepted", func() bool { return r.port.Pending() == min(i+1, 3) })
	}
	ended(t, silent[0])
	ended(t, silent[1])
	exchange(t, r.dial(t), "AMQP", "amqp:AMQP") // closes the third one
	ended(t, silent[2])
	exchange(t, silent[3], "POST", "http:POST")
	exchange(t, silent[4], "AMQP", "amqp:AMQP")
}

// A server that does not accept cannot make the port hold connections forever. The test runs in a bubble, because
// the timeout of pending connections passes here, too.
func TestConnectionsStayPendingUntilAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		waits := kit.NewPipeListener()
		config.Listeners = []net.Listener{kit.NewPipeListener(), waits}
		config.PendingTimeout = 300 * time.Millisecond
		p := kit.Must(Open(t.Context(), config))(t)
		begin := time.Now()
		conn := waits.Dial(t, nil)
		exchange(t, conn, "AMQP", "")
		ended(t, conn)
		if took := time.Since(begin); took != config.PendingTimeout {
			t.Errorf("closed after %s", took)
		}
		if err := p.AMQP().Close(); err != nil {
			t.Error(err)
		}
		begin = time.Now()
		conn = waits.Dial(t, nil)
		exchange(t, conn, "AMQP", "")
		ended(t, conn) // the listener is closed
		if took := time.Since(begin); took != 0 {
			t.Errorf("closed after %s, not at once", took)
		}
		held := waits.Dial(t, nil)
		exchange(t, held, "POST", "")
		synctest.Wait()
		if n := p.Pending(); n != 1 {
			t.Errorf("%d wait for the server, want 1", n)
		}
		for range 2 {
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		ended(t, held)
		if _, err := p.HTTP().Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := waits.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error("listens after Close")
		}
	})
}

// remoteListener gives every peer the address of another machine.
type remoteListener struct{ net.Listener }

func (l remoteListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remote{conn}, nil
}

type remote struct{ net.Conn }

func (r remote) CloseWrite() error { return r.Conn.(*net.TCPConn).CloseWrite() }

func (remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// Refusals use the protocol of the client.
func TestRefusalsUseTheProtocolOfTheClient(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	strict := openRig(t, func(c *Config) {
		c.Listeners = []net.Listener{remoteListener{listenLoopback(t)}}
		c.TLS, c.RequireTLS = load(t, files).TLS(), true
	})
	for say, want := range map[string]string{
		"AMQP\x00\x01\x00\x00":                        "AMQP\x02\x01\x00\x00",
		"GET /health HTTP/1.1\r\n\r\n":                "HTTP/1.1 400 Bad Request",
		"GET /$servicebus/websocket HTTP/1.1\r\n\r\n": "HTTP/1.1 400 Bad Request",
	} {
		conn := strict.dial(t)
		exchange(t, conn, say, want)
		ended(t, conn)
	}
	// The refusal arrives although the client continues to send.
	for range 20 {
		conn := strict.dial(t)
		exchange(t, conn, "POST /large HTTP/1.1\r\n"+strings.Repeat("x", refusalBytesMax/2), "HTTP/1.1 400 Bad Request")
		if rest, err := io.ReadAll(conn); err != nil || !strings.Contains(string(rest), "Use TLS") {
			t.Fatalf("%q, %v", rest, err) // a reset could discard bytes that were sent before
		}
	}
	exchange(t, tls.Client(strict.dial(t), trusted), "AMQP", "amqp:AMQP")
	near := openRig(t, func(c *Config) { c.TLS, c.RequireTLS = load(t, files).TLS(), true })
	exchange(t, near.dial(t), "AMQP\x00\x01\x00\x00", "AMQP\x02\x01\x00\x00") // loopback is not exempt

	plain := openRig(t, nil)
	err := tls.Client(plain.dial(t), trusted).HandshakeContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "handshake failure") {
		t.Error(err)
	}
	// TLS inside TLS is refused.
	twice := tls.Client(tls.Client(near.dial(t), trusted), trusted)
	if err := twice.HandshakeContext(t.Context()); err == nil {
		t.Error("TLS inside TLS")
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"listener":     func(c *Config) { c.Listeners = nil },
		"logger":       func(c *Config) { c.Logger = nil },
		"certificate":  func(c *Config) { c.RequireTLS = true },
		"below 1":      func(c *Config) { c.PendingMax = 0 },
		"not positive": func(c *Config) { c.PendingTimeout = 0 },
	} {
		config := DefaultConfig()
		config.Listeners = []net.Listener{&protocolListener{}}
		change(&config)
		if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// failing accepts nothing for a while, as if file descriptors had run out.
type failing struct {
	net.Listener
	left int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left--; f.left >= 0 {
		return nil, fmt.Errorf("for now: %w", errors.ErrUnsupported)
	}
	return f.Listener.Accept()
}

func TestAcceptContinuesAfterErrors(t *testing.T) {
	t.Parallel()
	r := openRig(t, func(c *Config) { c.Listeners = []net.Listener{&failing{c.Listeners[0], 3}} })
	exchange(t, r.dial(t), "AMQP", "amqp:AMQP")
}

// ws opens a WebSocket as a client that offers the subprotocol.
func (r *rig) ws(t *testing.T, scheme, path, subprotocol, origin string, config *tls.Config) (*websocket.Conn, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	options := &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}, HTTPHeader: http.Header{}}
	if subprotocol != "" {
		options.Subprotocols = strings.Split(subprotocol, ",")
	}
	if origin != "" {
		options.HTTPHeader.Set("Origin", origin)
	}
	conn, response, err := websocket.Dial(t.Context(), scheme+"://"+r.addr+path, options)
	if err != nil && response != nil {
		_ = response.Body.Close()
	}
	return conn, err
}

func TestWebSocketCarriesAMQP(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	r := openRig(t, func(c *Config) {
		c.TLS = load(t, files).TLS()
		c.Origins = []string{"localhost:*"}
	})
	for _, c := range []struct {
		scheme, path, offers, origin string
		want                         string // the subprotocol; "": refused
	}{
		{"ws", "/$servicebus/websocket", "AMQPWSB10", "", "AMQPWSB10"},
		{"wss", "/$servicebus/websocket/", "AMQPWSB10", "", "AMQPWSB10"},
		{"ws", "/$servicebus/websocket", "amqp", "", "amqp"},
		{"ws", "/$servicebus/websocket", "other,AMQPWSB10", "http://localhost:3000", "AMQPWSB10"},
		{"ws", "/$servicebus/websocket", "AMQPWSB10", "http://example.com", ""},
		{"ws", "/$servicebus/websocket", "other", "", ""},
		{"ws", "/$servicebus/websocket", "", "", ""},
	} {
		conn, err := r.ws(t, c.scheme, c.path, c.offers, c.origin, trusted.Clone())
		if (err == nil) != (c.want != "") {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if err != nil {
			continue
		}
		if got := conn.Subprotocol(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		stream := websocket.NetConn(t.Context(), conn, websocket.MessageBinary)
		exchange(t, stream, "any bytes", "amqp:any bytes")
		// Larger than any message of ours and any buffer, in both directions.
		go func() { _, _ = stream.Write(bytes.Repeat([]byte("x"), 3*messageBytesMax+1)) }()
		exchange(t, stream, "", strings.Repeat("x", 3*messageBytesMax+1))
		_ = stream.Close()
	}
	kit.Eventually(t, "no pending connections", func() bool { return r.port.Pending() == 0 })
}

// Where the machine itself is trusted, a page whose DNS name was pointed at 127.0.0.1 opens no WebSocket: to its
// browser, the broker has the same origin.
func TestWebSocketOfTrustedMachineNeedsLoopbackHost(t *testing.T) {
	t.Parallel()
	trusting, other := openRig(t, func(c *Config) { c.TrustLoopback = true }), openRig(t, nil)
	for _, c := range []struct {
		to   *rig
		host string
		want string
	}{
		{trusting, "evil.example:5672", "HTTP/1.1 403 "},
		{trusting, "localhost.evil.example", "HTTP/1.1 403 "},
		{trusting, "", "HTTP/1.1 403 "},
		{trusting, "localhost:5672", "HTTP/1.1 101 "},
		{trusting, "team.localhost", "HTTP/1.1 101 "},
		{trusting, "[::1]:5672", "HTTP/1.1 101 "},
		{trusting, "127.0.0.1", "HTTP/1.1 101 "},
		{other, "bus.example:5672", "HTTP/1.1 101 "},
	} {
		origin := ""
		if c.host != "" {
			origin = "Origin: http://" + c.host + "\r\n"
		}
		exchange(t, c.to.dial(t), "GET /$servicebus/websocket HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\nHost: "+c.host+"\r\n"+origin+"\r\n", c.want)
	}
}

// The request has the form that the Java client uses: the whole URL, no port in Host, and the first bytes of the
// WebSocket in the same packet.
func TestUpgradeRequestOfTheJavaClientIsAccepted(t *testing.T) {
	t.Parallel()
	r := openRig(t, nil)
	conn := r.dial(t)
	exchange(t, conn, "GET https://localhost/$servicebus/websocket HTTP/1.1\r\nConnection: Upgrade,Keep-Alive\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\nHost: localhost\r\n\r\n"+
		"\x82\x84\x00\x00\x00\x00AMQP", "HTTP/1.1 101 Switching Protocols\r\n")
	head := make([]byte, 0, 512)
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one...) {
		kit.Must(io.ReadFull(conn, one))(t)
	}
	exchange(t, conn, "", "\x82\x05amqp:\x82\x04AMQP")
}

// Requests that are not an upgrade, or too large, get a refusal.
func TestInvalidUpgradeRequestsAreRefused(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	r := openRig(t, func(c *Config) { c.TLS = load(t, files).TLS() })
	const line = "GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\n"
	for say, want := range map[string]string{
		line + "Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n": "HTTP/1.1 426 ",
		line + "\r\n": "HTTP/1.1 400 ",
		line + "X: " + strings.Repeat("x", upgradeBytesMax) + "\r\n\r\n": "HTTP/1.1 400 ",
		"GET /$servicebus/websocket nonsense\r\n\r\n":                    "HTTP/1.1 400 ",
	} {
		for _, secure := range []bool{false, true} {
			var conn net.Conn = r.dial(t)
			if secure {
				conn = tls.Client(conn, trusted)
			}
			exchange(t, conn, say, want)
			if rest, err := io.ReadAll(conn); err != nil {
				t.Errorf("%.60q: %q, %v", say, rest, err) // a body that may be incomplete
			}
		}
	}
}
