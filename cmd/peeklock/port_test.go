package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// getJSON sends a request over HTTP or HTTPS.
func getJSON(t *testing.T, config *tls.Config, url string, to any) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	response := kit.Must((&http.Client{Transport: transport}).Do(request))(t)
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(to); err != nil || response.StatusCode != 200 {
		t.Fatal(url, response.Status, err)
	}
}

// roundTrip sends a message with the official client and receives it.
func roundTrip(t *testing.T, connection string, options *azservicebus.ClientOptions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	client := kit.Must(azservicebus.NewClientFromConnectionString(connection, options))(t)
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	sender := kit.Must(client.NewSender("orders", nil))(t)
	body := bytes.Repeat([]byte("coffee"), 30000) // several frames, and several WebSocket messages
	kit.OK(t, sender.SendMessage(ctx, &azservicebus.Message{Body: body}, nil))
	receiver := kit.Must(client.NewReceiverForQueue("orders", nil))(t)
	got, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].Body, body) {
		t.Fatal(len(got), err)
	}
	kit.OK(t, receiver.CompleteMessage(ctx, got[0], nil))
}

// overWebSocket configures the official client to use WebSocket, as its documentation shows.
func overWebSocket(t *testing.T, scheme, subprotocol string, config *tls.Config) *azservicebus.ClientOptions {
	transport := &http.Transport{TLSClientConfig: config.Clone()}
	t.Cleanup(transport.CloseIdleConnections)
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			_, rest, _ := strings.Cut(args.Host, "://")
			conn, response, err := websocket.Dial(ctx, scheme+"://"+rest, &websocket.DialOptions{
				Subprotocols: []string{subprotocol}, HTTPClient: &http.Client{Transport: transport},
			})
			if err != nil {
				if response != nil {
					_ = response.Body.Close()
				}
				return nil, err
			}
			return websocket.NetConn(context.WithoutCancel(ctx), conn, websocket.MessageBinary), nil
		},
	}
}

// Every port serves every protocol, unencrypted and in TLS, with unmodified clients. Not parallel: the test looks
// for leaked goroutines.
func TestEveryProtocolOnEveryPort(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*deferError).Error"), // raft completes no future at its end
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
	ready, stop := startDev(t, filepath.Join(kit.MemoryDir(t), "data"), "--members", "1", "--tls")
	m := ready.Members[0]
	trusted := kit.Must(config.ClientTLS(ready.TLS.CA))(t)
	say(t, m, 0, "queue", "create", "orders")
	for _, address := range []string{m.AMQP, strings.TrimPrefix(m.Admin, "http://")} {
		for scheme, config := range map[string]*tls.Config{"amqp": nil, "amqps": trusted.Clone()} {
			conn, err := amqp.Dial(t.Context(), scheme+"://"+address, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(auth.DevKeyName, auth.DevKey), TLSConfig: config})
			if err != nil {
				t.Fatal(scheme, err)
			}
			if err := conn.Close(); err != nil {
				t.Error(scheme, err)
			}
		}
		for _, scheme := range []string{"http", "https"} {
			var status topology.Status
			if getJSON(t, trusted, scheme+"://"+address+"/v1/status", &status); len(status.Members) != 1 {
				t.Errorf("%s: %+v", scheme, status)
			}
		}
		secure := strings.Replace(m.TLSConnectionString, m.AMQP, address, 1)
		// With a port in the endpoint, this client compares the certificate with "localhost:port"; a custom
		// endpoint is its way to set a port.
		noPort := strings.Replace(m.TLSConnectionString, m.AMQP, "localhost", 1)
		roundTrip(t, noPort, &azservicebus.ClientOptions{TLSConfig: trusted.Clone(), CustomEndpoint: address})
		roundTrip(t, secure+";UseDevelopmentEmulator=true", nil)
		roundTrip(t, secure, overWebSocket(t, "wss", "AMQPWSB10", trusted))
		roundTrip(t, secure, overWebSocket(t, "ws", "amqp", trusted))
		wants(t, say(t, devMember{Admin: "https://" + address}, 0, "message", "send", "orders", "x", "--ca", ready.TLS.CA), "1 sent")
		wants(t, say(t, devMember{Admin: "https://" + address}, 0, "message", "receive", "orders", "--ca", ready.TLS.CA), "x")
	}
	wants(t, say(t, devMember{Admin: "https://" + m.AMQP}, 1, "queue", "list"), "certificate")
	wants(t, say(t, devMember{Admin: "https://" + m.AMQP}, 2, "queue", "list", "--ca", ready.TLS.Key), "holds no certificate")
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// serveArgs are the arguments of a member alone in a cluster, on free ports.
func serveArgs(args ...string) []string {
	return append([]string{
		"serve", "--peer", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--partitions", "1", "--replication", "1",
	}, args...)
}

// startServe runs one serve on free ports until it is ready. Its log continues to be written.
func startServe(t *testing.T, args ...string) (amqpAddr, httpAddr string, log *kit.LogLines) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log = new(kit.LogLines)
	code := make(chan int, 1)
	args = serveArgs(append([]string{"--dir", kit.MemoryDir(t)}, args...)...)
	go func() {
		code <- run(ctx, cli.Process{
			Args: args,
			In:   strings.NewReader(""), Out: io.Discard, Err: log,
		})
	}()
	t.Cleanup(func() {
		cancel()
		if c := <-code; c != 0 {
			t.Errorf("exit code %d: %s", c, log.String())
		}
	})
	kit.Eventually(t, "ready", func() bool {
		select {
		case c := <-code:
			code <- 0
			t.Fatalf("serve ended with %d: %s", c, log.String())
		default:
		}
		return strings.Contains(log.String(), "member became ready")
	})
	found := regexp.MustCompile(`amqp=(\S+) http=(\S+)`).FindStringSubmatch(log.String())
	return found[1], found[2], log
}

// A member presents a new certificate after its files are replaced, without a restart.
func TestServeReloadsItsCertificate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	files := kit.Must(listen.Development(dir))(t)
	address, _, log := startServe(t, "--key", auth.DevKey, "--tls-cert", files.Cert, "--tls-key", files.Key)
	trusted := kit.Must(config.ClientTLS(files.CA))(t)
	serial := func() string {
		conn := kit.Must((&tls.Dialer{Config: trusted}).DialContext(t.Context(), "tcp", address))(t)
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	kit.OK(t, os.Remove(files.Cert))
	kit.Must(listen.Development(dir))(t)
	kit.Eventually(t, "the new certificate is shown", func() bool { return serial() != before })
	wants(t, log.String(), "certificate reloaded")
}

// outward returns an address of this machine that is not loopback, or none.
func outward(t *testing.T) string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Skip(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// With a certificate, a member may listen beyond loopback. It then accepts only encrypted connections from other
// machines, unless a setting allows unencrypted ones.
func TestServeRequiresTLSBeyondLoopback(t *testing.T) {
	kit.Long(t)
	if testing.Short() {
		t.Skip("starts two members")
	}
	t.Parallel()
	host := outward(t)
	files := kit.Must(listen.Development(filepath.Join(t.TempDir(), "tls")))(t)
	trusted := kit.Must(config.ClientTLS(files.CA))(t)
	trusted.ServerName = "localhost"
	knock := func(address string, config *tls.Config) string {
		var conn net.Conn
		var err error
		if config != nil {
			conn, err = (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
		} else {
			conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		answer := make([]byte, 8)
		kit.Must(fmt.Fprint(conn, "AMQP\x00\x01\x00\x00"))(t)
		kit.Must(io.ReadFull(conn, answer))(t)
		return string(answer)
	}
	const spoken, wanted = "AMQP\x00\x01\x00\x00", "AMQP\x02\x01\x00\x00"
	key := filepath.Join(t.TempDir(), "key")
	kit.OK(t, os.WriteFile(key, []byte("a key of our own\n"), 0o600))
	strict := []string{"--amqp", host + ":0", "--tls-cert", files.Cert, "--tls-key", files.Key, "--key-file", key}
	for name, c := range map[string]struct {
		args  []string
		plain string
	}{
		"silent":  {strict, wanted},
		"allowed": {append(strict[:len(strict):len(strict)], "--allow-remote-plain"), spoken},
		"both":    {append(strict[:len(strict):len(strict)], "--allow-remote-plain", "--require-tls"), wanted},
	} {
		t.Run(name, func(t *testing.T) {
			address, _, _ := startServe(t, c.args...)
			if got := knock(address, nil); got != c.plain {
				t.Errorf("plain: %q, want %q", got, c.plain)
			}
			if got := knock(address, trusted); got != spoken {
				t.Errorf("tls: %q", got)
			}
		})
	}
}

// Additional addresses serve the same as the first.
func TestServeListensOnAdditionalAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	also, err := freeGossipPort(t.Context()) // such a port is not assigned to others between here and its use
	if err != nil {
		t.Fatal(err)
	}
	startServe(t, "--also", also, "--trust-loopback")
	var status topology.Status
	if getJSON(t, nil, "http://"+also+"/v1/status", &status); len(status.Members) != 1 {
		t.Errorf("%+v", status)
	}
}
