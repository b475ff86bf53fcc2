package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"

	"github.com/peeklock/peeklock/test/harness"
)

func secureChecks() []check {
	return []check{
		{name: "tls", run: secureClient},
		{name: "unknown authority", run: secureUntrusted},
		{name: "websocket", run: secureWebSocket},
		{name: "administration", run: secureAdmin},
		{name: "go-amqp tls", run: securePlain},
		{name: "go-amqp websocket", run: securePlainWebSocket},
	}
}

// trust returns the TLS configuration of a client that trusts only the development authority.
func (s suite) trust() *tls.Config {
	s.Helper()
	content, err := os.ReadFile(s.CA)
	s.must("read the authority", err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		s.Fatal("no certificate in the file that dev names")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// secured opens a client with a connection string in the form of the service. With TLS on another
// port than 5671, this client needs the address as a custom endpoint: it would expect the port of
// the string in the certificate too.
func (s suite) secured(o *azservicebus.ClientOptions) *azservicebus.Client {
	s.Helper()
	o.CustomEndpoint = s.Members[0].AMQP
	c, err := azservicebus.NewClientFromConnectionString(harness.SecureConnectionString("localhost"), o)
	s.must("client", err)
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// roundTrip sends a message, receives it, and completes it.
func (s suite) roundTrip(c *azservicebus.Client) {
	s.Helper()
	sender, err := c.NewSender(s.queue, nil)
	s.must("sender", err)
	body := string(make([]byte, 100_000)) // larger than a frame or a record
	s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte(body)}, nil))
	r, err := c.NewReceiverForQueue(s.queue, nil)
	s.must("receiver", err)
	m := s.receiveOne(r)
	if string(m.Body) != body {
		s.Errorf("%d bytes came back", len(m.Body))
	}
	s.must("complete", r.CompleteMessage(s.ctx, m, nil))
	s.counts(harness.Counts{})
}

func secureClient(s suite) { s.roundTrip(s.secured(&azservicebus.ClientOptions{TLSConfig: s.trust()})) }

// A client that does not trust the authority cannot connect by accident.
func secureUntrusted(s suite) {
	c := s.secured(&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	sender, err := c.NewSender(s.queue, nil)
	s.must("sender", err)
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{}, nil); err == nil {
		s.Error("sent to a member whose certificate nobody vouches for")
	}
	s.counts(harness.Counts{})
}

// webSocket dials like the client's own example.
func (s suite) webSocket(ctx context.Context, url string) (net.Conn, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.trust()}}
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: client}) //nolint:bodyclose // it has none after an upgrade
	if err != nil {
		return nil, err
	}
	return websocket.NetConn(context.Background(), conn, websocket.MessageBinary), nil
}

func secureWebSocket(s suite) {
	s.roundTrip(s.secured(&azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return s.webSocket(ctx, strings.Replace(args.Host, "localhost", s.Members[0].AMQP, 1))
		},
	}))
}

// The port of the connection string also serves the administration client.
func secureAdmin(s suite) {
	transport := &http.Transport{TLSClientConfig: s.trust()}
	s.Cleanup(transport.CloseIdleConnections)
	options := &admin.ClientOptions{}
	options.Transport = &http.Client{Transport: transport}
	c, err := admin.NewClientFromConnectionString(harness.SecureConnectionString(s.Members[0].AMQP), options)
	s.must("client", err)
	_, err = c.CreateQueue(s.ctx, s.queue+"-made", nil)
	s.must("create", err)
	got, err := c.GetQueueRuntimeProperties(s.ctx, s.queue+"-made", nil)
	s.must("get", err)
	if got == nil || got.TotalMessageCount != 0 {
		s.Errorf("got %+v", got)
	}
	_, err = c.DeleteQueue(s.ctx, s.queue+"-made", nil)
	s.must("delete", err)
}

// plainRoundTrip is roundTrip for a client that knows only AMQP.
func (s suite) plainRoundTrip(conn *amqp.Conn, err error) {
	s.Helper()
	s.must("connect", err)
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(s.ctx, nil)
	s.must("session", err)
	sender, err := session.NewSender(s.ctx, s.queue, nil)
	s.must("sender", err)
	s.must("send", sender.Send(s.ctx, text("x"), nil))
	r, err := session.NewReceiver(s.ctx, s.queue, nil)
	s.must("receiver", err)
	s.must("accept", r.AcceptMessage(s.ctx, s.get(r)))
	s.counts(harness.Counts{})
}

func securePlain(s suite) {
	s.plainRoundTrip(amqp.Dial(s.ctx, "amqps://"+s.Members[0].AMQP, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key), TLSConfig: s.trust(),
	}))
}

func securePlainWebSocket(s suite) {
	conn, err := s.webSocket(s.ctx, "wss://"+s.Members[0].AMQP+"/$servicebus/websocket")
	s.must("dial", err)
	s.plainRoundTrip(amqp.NewConn(s.ctx, conn, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key)}))
}
