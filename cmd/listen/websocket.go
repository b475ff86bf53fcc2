package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/peeklock/peeklock/admin/connection"
)

const (
	upgradeBytesMax     = 16 * 1024              // of the upgrade request; the limit of the admin server
	upgradeBufferBytes  = 4 * 1024               // read and write buffer of a WebSocket connection
	messageBytesMax     = 64 * 1024              // of a WebSocket message that we send; AMQP ignores message boundaries
	closeFrameTimeMax   = 100 * time.Millisecond // to write the close frame: the kernel buffers it or is full
	subprotocolCloud    = "AMQPWSB10"            // subprotocol of the cloud service and its clients
	subprotocolStandard = "amqp"                 // AMQP over WebSocket, OASIS, 2.1; in the documentation of the Go client
)

var errUpgrade = errors.New("no upgrade to websocket")

// upgrade answers a WebSocket request and returns the stream inside. conn has a deadline, which the caller
// removes. With loopbackOnly, the request must be addressed to a loopback name: a web page whose DNS name was pointed
// at 127.0.0.1 would otherwise reach a broker that trusts its own machine.
//
// This package answers the request, and not the HTTP server, because the result is an AMQP client, and because
// until then the connection is pending like any other.
func upgrade(ctx context.Context, conn net.Conn, origins []string, loopbackOnly bool) (net.Conn, error) {
	reader := bufio.NewReaderSize(&io.LimitedReader{R: conn, N: upgradeBytesMax}, upgradeBufferBytes)
	paced := newPacedConn(conn)
	w := &upgradeResponse{conn: paced, reader: reader, header: make(http.Header)}
	request, err := http.ReadRequest(reader)
	if err != nil {
		http.Error(w, "The request is malformed or larger than 16 KiB.", http.StatusBadRequest)
		return nil, fmt.Errorf("%w: %w", errUpgrade, err)
	}
	if !offersAMQP(request.Header) {
		http.Error(w, "Offer the subprotocol AMQPWSB10 (or amqp): this path is AMQP over WebSocket.", http.StatusBadRequest)
		return nil, fmt.Errorf("%w: subprotocol %.40q", errUpgrade, request.Header.Get("Sec-WebSocket-Protocol"))
	}
	if loopbackOnly && !connection.IsLoopbackHost(request.Host) {
		http.Error(w, "Connect to localhost or a loopback address: clients of this machine may use no other host name here.", http.StatusForbidden)
		return nil, fmt.Errorf("%w: host %.100q is no loopback name", errUpgrade, request.Host)
	}
	ws, err := websocket.Accept(w, request, &websocket.AcceptOptions{
		Subprotocols:   []string{subprotocolCloud, subprotocolStandard},
		OriginPatterns: origins,
	})
	if err == nil {
		err = w.err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUpgrade, err)
	}
	// Deadlines and Close end the stream. ctx is that of a pending connection and must not end it.
	return &webSocket{
		Conn: websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary), ws: ws, transport: paced,
		foreignOrigin: isForeignOrigin(request),
	}, nil
}

// isForeignOrigin reports whether a web page of another host than that of the request opens the WebSocket.
func isForeignOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

// offersAMQP reports whether the client offers a subprotocol that we support.
func offersAMQP(h http.Header) bool {
	for _, line := range h.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if slices.Contains([]string{strings.ToLower(subprotocolCloud), subprotocolStandard}, name) {
				return true
			}
		}
	}
	return false
}

// webSocket is the stream of bytes inside binary WebSocket messages.
type webSocket struct {
	net.Conn
	ws        *websocket.Conn
	transport *pacedConn // connection that carries the WebSocket

	foreignOrigin bool
}

// ForeignOrigin implements amqp.OriginConn.
func (c *webSocket) ForeignOrigin() bool { return c.foreignOrigin }

// ConnectionState returns the state of the TLS connection below; it is zero without TLS.
func (c *webSocket) ConnectionState() tls.ConnectionState { return tlsState(c.transport.Conn) }

// Read reads payloads of binary messages, at most payloadReadBytesMax at a time.
func (c *webSocket) Read(b []byte) (int, error) {
	b = b[:min(len(b), payloadReadBytesMax)]
	n, err := c.Conn.Read(b)
	c.transport.carried(n)
	return n, err //nolint:wrapcheck // a pass-through
}

// AcknowledgeAtOnce implements amqp.AcknowledgingConn.
func (c *webSocket) AcknowledgeAtOnce() { acknowledge(c.transport.Conn) }

// Write sends b in messages that fit into the buffers of all clients.
func (c *webSocket) Write(b []byte) (int, error) {
	written := 0
	for part := range slices.Chunk(b, messageBytesMax) {
		n, err := c.Conn.Write(part)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// Close sends a close frame and does not wait for that of the peer: the AMQP connection inside is already closed,
// and a server that shuts down closes thousands of connections.
func (c *webSocket) Close() error {
	c.transport.stopPacing()
	_ = c.transport.SetReadDeadline(time.Unix(1, 0))
	_ = c.transport.SetWriteDeadline(time.Now().Add(closeFrameTimeMax))
	_ = c.ws.Close(websocket.StatusNormalClosure, "")
	_ = c.Conn.Close() // stops its timers; everything else is closed
	return nil
}

// upgradeResponse writes one HTTP response to a connection. It has only what the upgrade needs.
type upgradeResponse struct {
	conn   *pacedConn
	reader *bufio.Reader
	header http.Header
	wrote  bool
	err    error
}

// Header returns the header that WriteHeader sends.
func (a *upgradeResponse) Header() http.Header { return a.header }

// WriteHeader sends status and header, once. The end of the connection is the end of the body.
func (a *upgradeResponse) WriteHeader(status int) {
	if a.wrote {
		return
	}
	a.wrote = true
	if a.header.Get("Connection") == "" {
		a.header.Set("Connection", "close")
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = a.header.Write(&b)
	b.WriteString("\r\n")
	_, a.err = io.WriteString(a.conn, b.String())
}

// Write sends a part of the body.
func (a *upgradeResponse) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.conn.Write(b)
}

// Hijack returns the connection, and the bytes that were read after the request.
func (a *upgradeResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return a.conn, bufio.NewReadWriter(a.reader, bufio.NewWriterSize(a.conn, upgradeBufferBytes)), nil
}
