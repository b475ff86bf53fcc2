package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/pires/go-proxyproto"

	"github.com/peeklock/peeklock/test/kit"
)

// behind is the network of the proxies in the tests: see remoteListener.
var behind = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}

// openProxied returns a port whose servers send their name, the address of the client, and whether a proxy
// reported it.
func openProxied(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	config := DefaultConfig()
	config.Listeners = []net.Listener{remoteListener{listenLoopback(t)}}
	config.ProxyFrom = behind
	change(&config)
	p := kit.Must(Open(t.Context(), config))(t)
	var servers sync.WaitGroup
	for name, l := range map[string]net.Listener{"amqp": p.AMQP(), "http": p.HTTP()} {
		servers.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				servers.Go(func() {
					defer conn.Close()
					proxyAware, _ := conn.(interface{ Proxied() bool })
					_, _ = fmt.Fprintf(conn, "%s %s %v\n", name, conn.RemoteAddr(), proxyAware != nil && proxyAware.Proxied())
					_, _ = io.Copy(conn, conn)
				})
			}
		})
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		servers.Wait()
	})
	return &rig{p, p.AMQP().Addr().String()}
}

// header returns a header of version 2, with extra bytes after the addresses.
func header(t testing.TB, command proxyproto.ProtocolVersionAndCommand, protocol proxyproto.AddressFamilyAndProtocol, source net.Addr, extra int) string {
	t.Helper()
	h := &proxyproto.Header{Version: 2, Command: command, TransportProtocol: protocol, SourceAddr: source, DestinationAddr: source}
	if extra > 0 {
		kit.OK(t, h.SetTLVs([]proxyproto.TLV{{Type: 0xE0, Value: make([]byte, extra)}}))
	}
	b := kit.Must(h.Format())(t)
	return string(b)
}

const (
	lineTCP4   = "PROXY TCP4 198.51.100.7 203.0.113.1 4711 5672\r\n"
	ownAddress = "192.0.2.1:1" // the address of peers of remoteListener
)

// The address of the client is that in the header, or the proxy's own if the connection is its own. Everything
// after the header works as without a proxy, however it is divided into packets.
func TestProxyHeaderSetsTheClientAddress(t *testing.T) {
	t.Parallel()
	four := &net.TCPAddr{IP: net.IPv4(198, 51, 100, 7), Port: 4711}
	six := &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 4711}
	r := openProxied(t, func(*Config) {})
	for name, c := range map[string]struct{ header, want string }{
		"version 1":            {lineTCP4, "198.51.100.7:4711"},
		"version 1, IPv6":      {"PROXY TCP6 2001:db8::7 2001:db8::1 4711 5672\r\n", "[2001:db8::7]:4711"},
		"version 1, unknown":   {"PROXY UNKNOWN\r\n", ownAddress},
		"version 2":            {header(t, proxyproto.PROXY, proxyproto.TCPv4, four, 0), "198.51.100.7:4711"},
		"version 2, IPv6":      {header(t, proxyproto.PROXY, proxyproto.TCPv6, six, 0), "[2001:db8::7]:4711"},
		"version 2, long":      {header(t, proxyproto.PROXY, proxyproto.TCPv4, four, 4000), "198.51.100.7:4711"},
		"version 2, local":     {header(t, proxyproto.LOCAL, proxyproto.UNSPEC, nil, 0), ownAddress},
		"version 2, local too": {header(t, proxyproto.LOCAL, proxyproto.TCPv4, four, 0), ownAddress},
		"version 2, datagrams": {header(t, proxyproto.PROXY, proxyproto.UDPv4, &net.UDPAddr{IP: four.IP, Port: 1}, 0), ownAddress},
		"loopback, it says":    {"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, step := range []int{1, 20, 10_000} {
				for say, kind := range map[string]string{"AMQP\x00\x01\x00\x00": "amqp", "POST / HTTP/1.1\r\n": "http"} {
					conn := r.dial(t)
					for left := c.header + say; left != ""; {
						n := min(step, len(left))
						kit.Must(io.WriteString(conn, left[:n]))(t)
						left = left[n:]
					}
					exchange(t, conn, "", kind+" "+c.want+" true\n"+say)
					exchange(t, conn, "and on", "and on")
				}
			}
		})
	}
}

// The header precedes TLS and WebSocket, and its address applies to the connection inside.
func TestProxyHeaderBeforeTLSAndWebSocket(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	r := openProxied(t, func(c *Config) { c.TLS, c.RequireTLS = load(t, files).TLS(), true })
	conn := r.dial(t)
	exchange(t, conn, lineTCP4, "")
	exchange(t, tls.Client(conn, trusted), "AMQP", "amqp 198.51.100.7:4711 true\nAMQP")

	transport := &http.Transport{TLSClientConfig: trusted.Clone(), DialContext: func(context.Context, string, string) (net.Conn, error) {
		conn := r.dial(t)
		_, err := io.WriteString(conn, lineTCP4)
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	ws, _, err := websocket.Dial(t.Context(), "wss://"+r.addr+webSocketPath, &websocket.DialOptions{ //nolint:bodyclose // the library gives none to close
		Subprotocols: []string{subprotocolCloud}, HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		t.Fatal(err)
	}
	stream := websocket.NetConn(t.Context(), ws, websocket.MessageBinary)
	defer stream.Close()
	exchange(t, stream, "", "amqp 198.51.100.7:4711")
}

// records collects what is logged.
type records struct {
	slog.Handler
	mu    sync.Mutex
	texts []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, record slog.Record) error {
	text := record.Level.String() + " " + record.Message
	record.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
	return nil
}

func (r *records) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.texts...)
}

// A proxy that sends no header, or an invalid one, is refused and never treated as the client; so is a peer that
// sends a header and is not a proxy. The log has one warning, not one for each.
func TestInvalidProxyHeadersAreRefused(t *testing.T) {
	t.Parallel()
	files, trusted := development(t)
	two := header(t, proxyproto.PROXY, proxyproto.TCPv4, &net.TCPAddr{IP: net.IPv4(198, 51, 100, 7), Port: 1}, 0)
	for name, c := range map[string]struct {
		say  string
		from []netip.Prefix
		tls  bool // sent inside TLS
		want error
	}{
		"missing, AMQP":              {"AMQP\x00\x01\x00\x00", behind, false, errProxyMissing},
		"missing, HTTP":              {"GET / HTTP/1.1\r\n\r\n", behind, false, errProxyMissing},
		"missing, TLS":               {"\x16\x03\x01\x02\x00", behind, false, errProxyMissing},
		"nearly version 1":           {"PROXX TCP4", behind, false, errProxyMissing},
		"nearly version 2":           {"\r\n\r\n\x00\r\nQUIT\r", behind, false, errProxyMissing},
		"version 1 without end":      {"PROXY UNKNOWN " + strings.Repeat("x", proxyLineBytesMax), behind, false, errProxyTooLong},
		"version 1, a byte too long": {"PROXY UNKNOWN" + strings.Repeat(" ", proxyLineBytesMax-14) + "\r\n", behind, false, errProxyTooLong},
		"version 1, bad address":     {"PROXY TCP4 client 203.0.113.1 1 2\r\n", behind, false, errProxyMalformed},
		"version 1, bad port":        {"PROXY TCP4 198.51.100.7 203.0.113.1 65536 2\r\n", behind, false, errProxyMalformed},
		"version 1, bare line feed":  {"PROXY TCP4 198.51.100.7 203.0.113.1 1 2\n", behind, false, errProxyMalformed},
		"version 2, too long":        {two[:14] + "\x10\x01", behind, false, errProxyTooLong},
		"version 2, bad command":     {two[:12] + "\x2f" + two[13:], behind, false, errProxyMalformed},
		"version 2, short addresses": {two[:14] + "\x00\x02\x00\x00", behind, false, errProxyMalformed},
		"twice":                      {lineTCP4 + two, behind, false, errProxyUntrusted},
		"no proxy, version 1":        {lineTCP4, nil, false, errProxyUntrusted},
		"no proxy, version 2":        {two, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, false, errProxyUntrusted},
		"no proxy, inside TLS":       {lineTCP4, nil, true, errProxyUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &records{}
			r := openProxied(t, func(config *Config) {
				config.ProxyFrom, config.Logger, config.TLS = c.from, slog.New(log), load(t, files).TLS()
			})
			for lines := range 2 {
				var conn net.Conn = r.dial(t)
				if c.tls {
					conn = tls.Client(conn, trusted)
				}
				exchange(t, conn, c.say, "")
				b, err := io.ReadAll(conn) // a reset, if bytes of the client were not read
				var late net.Error
				if len(b) > 0 || errors.As(err, &late) && late.Timeout() {
					t.Fatalf("answered %q, %v", b, err)
				}
				// The port logs after it has closed the connection: the next one must not overtake the line.
				kit.Eventually(t, "the refusal is logged", func() bool { return len(log.all()) == lines+1 })
			}
			first, second := log.all()[0], log.all()[1]
			if !strings.HasPrefix(first, "WARN") || !strings.HasPrefix(second, "DEBUG") || !strings.Contains(first, c.want.Error()) || !strings.Contains(first, "peer=") {
				t.Errorf("%q, then %q", first, second)
			}
		})
	}
}

// nearProxy gives peers of a pipe the address of the proxy.
type nearProxy struct{ *kit.PipeListener }

func (l nearProxy) Accept() (net.Conn, error) { return remoteListener{l.PipeListener}.Accept() }

// A header that does not arrive, or is incomplete, has no more time than anything else before authentication.
func TestSlowProxyHeadersTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const within = 300 * time.Millisecond
		pipes := kit.NewPipeListener()
		openRig(t, func(c *Config) {
			c.Listeners, c.ProxyFrom, c.PendingTimeout = []net.Listener{nearProxy{pipes}}, behind, within
		})
		for _, say := range []string{"", "PROX", lineTCP4[:30], "\r\n\r\n", lineTCP4, lineTCP4 + "AM"} {
			begin := time.Now()
			conn := pipes.Dial(t, nil)
			exchange(t, conn, say, "")
			ended(t, conn)
			if took := time.Since(begin); took != within {
				t.Errorf("%q: closed after %s", say, took)
			}
		}
	})
}

// With TrustLoopback, TLS is not required on loopback. A loopback address in a header does not count.
func TestTrustedLoopbackIsExemptFromTLS(t *testing.T) {
	t.Parallel()
	files, _ := development(t)
	const tlsHeader = "AMQP\x02\x01\x00\x00"
	near := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, c := range map[string]struct {
		trusted   bool
		from      []netip.Prefix
		say, want string
	}{
		"not asked for":             {false, nil, "AMQP\x00\x01\x00\x00", tlsHeader},
		"asked for":                 {true, nil, "AMQP", "amqp 127.0.0.1:"},
		"behind a proxy":            {true, near, lineTCP4 + "AMQP\x00\x01\x00\x00", tlsHeader},
		"behind one, it claims":     {true, near, "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nAMQP\x00\x01\x00\x00", tlsHeader},
		"the proxy's own":           {true, near, "PROXY UNKNOWN\r\nAMQP\x00\x01\x00\x00", tlsHeader},
		"behind one, not asked for": {false, near, "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nAMQP\x00\x01\x00\x00", tlsHeader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openProxied(t, func(config *Config) {
				config.Listeners = []net.Listener{listenLoopback(t)}
				config.TLS, config.RequireTLS, config.TrustLoopback, config.ProxyFrom = load(t, files).TLS(), true, c.trusted, c.from
			})
			exchange(t, r.dial(t), c.say, c.want)
		})
	}
}

// Whatever arrives, and however it is divided: a header is found or refused in the same way, within its bound, and
// no byte after it is lost.
func FuzzProxyHeader(f *testing.F) {
	for _, seed := range []string{
		lineTCP4 + "AMQP", "PROXY UNKNOWN\r\n", "PROXY TCP6 ::1 ::1 0 65535\r\nGET /", "PROXYTCP4", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00AMQP",
		header(f, proxyproto.PROXY, proxyproto.TCPv4, &net.TCPAddr{IP: net.IPv4(1, 2, 3, 4), Port: 1}, 9) + "\x16\x03\x01",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(13))
	}
	f.Fuzz(func(t *testing.T, sent []byte, step uint8) {
		whole, errWhole := readProxy(remote{&script{left: bytes.Clone(sent), step: max(1, len(sent))}})
		parts, errParts := readProxy(remote{&script{left: bytes.Clone(sent), step: int(step%64) + 1}})
		if (errWhole == nil) != (errParts == nil) {
			t.Fatalf("whole: %v, in parts: %v", errWhole, errParts)
		}
		if errWhole != nil {
			return
		}
		size, _, _ := proxyHeaderSize(sent)
		for _, conn := range []*proxied{whole, parts} {
			rest, err := io.ReadAll(conn)
			if err != nil || size > proxyHeaderBytesMax || !bytes.Equal(rest, sent[size:]) || conn.RemoteAddr().String() != whole.RemoteAddr().String() {
				t.Fatalf("%d bytes of header from %s, then %q, %v", size, conn.RemoteAddr(), rest, err)
			}
		}
	})
}
