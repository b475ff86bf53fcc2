package listen

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"
)

// Limits of a PROXY protocol header. It must arrive within Config.PendingTimeout.
const (
	proxyLineBytesMax   = 107 // of version 1 with its line end, as specified
	proxyFixedBytes     = 16  // of version 2, up to and including the length of the rest
	proxyHeaderBytesMax = proxyFixedBytes + 4096
	proxyBufferBytes    = 256         // enough for all headers except those with certificates
	proxyWarnEvery      = time.Minute // between two log lines about invalid headers
)

// Errors that a wrong setting here or on the balancer causes. Unlike other ends of connections, they are logged as
// warnings.
var (
	errProxyMissing   = errors.New("the peer is in a network of proxy_protocol_from and sent no PROXY protocol header: let it send one, or take its network out of the setting")
	errProxyTooLong   = errors.New("the PROXY protocol header is too long")
	errProxyMalformed = errors.New("the PROXY protocol header is malformed")
	errProxyUntrusted = errors.New("the peer sent a PROXY protocol header and is in no network of proxy_protocol_from")
)

// proxied is a connection from a proxy, after its header. One goroutine reads at a time.
type proxied struct {
	net.Conn
	first  []byte   // bytes that arrived with the header and are not yet read; nil afterwards
	client net.Addr // the peer of the proxy, or the proxy itself if the connection is its own
}

// RemoteAddr returns the address in the header: that of the client.
func (c *proxied) RemoteAddr() net.Addr { return c.client }

// AcknowledgeAtOnce implements amqp.AcknowledgingConn.
func (c *proxied) AcknowledgeAtOnce() { acknowledge(c.Conn) }

func (c *proxied) Read(b []byte) (int, error) {
	if c.first == nil {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}

// CloseWrite closes the write direction, if the connection supports it.
func (c *proxied) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// readProxy reads the header of a connection. The Read method of the result returns bytes that arrived after the
// header.
func readProxy(raw net.Conn) (*proxied, error) {
	buffer := make([]byte, 0, proxyBufferBytes)
	for {
		n, err := raw.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		size, whole, wrong := proxyHeaderSize(buffer)
		switch {
		case wrong != nil:
			return nil, wrong
		case whole:
			return parseProxy(raw, buffer, size)
		case err != nil:
			return nil, fmt.Errorf("read the PROXY protocol header: %w", err)
		}
		buffer = slices.Grow(buffer, max(1, size-len(buffer)))
	}
}

// proxyHeaderSize returns the length of the header, computed from its first bytes, and whether the header is
// complete. size is 0 until the length is known.
func proxyHeaderSize(b []byte) (size int, whole bool, err error) {
	one, two := proxyproto.SIGV1, proxyproto.SIGV2
	switch {
	case bytes.HasPrefix(b, one):
		line := b[:min(len(b), proxyLineBytesMax)]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			return end + 1, true, nil
		}
		if len(line) == proxyLineBytesMax {
			return 0, false, errProxyTooLong
		}
	case bytes.HasPrefix(b, two):
		if len(b) < proxyFixedBytes {
			return 0, false, nil
		}
		size = proxyFixedBytes + int(binary.BigEndian.Uint16(b[proxyFixedBytes-2:]))
		if size > proxyHeaderBytesMax {
			return 0, false, errProxyTooLong
		}
		return size, len(b) >= size, nil
	case !bytes.HasPrefix(one, b) && !bytes.HasPrefix(two, b):
		return 0, false, errProxyMissing
	}
	return 0, false, nil
}

// parseProxy returns the connection of a complete header. Health checks of balancers (LOCAL, UNKNOWN) and clients
// without a TCP address count as connections of the proxy itself, as the protocol specifies.
func parseProxy(raw net.Conn, b []byte, size int) (*proxied, error) {
	header, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(b[:size])))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProxyMalformed, err)
	}
	conn := &proxied{Conn: raw, client: raw.RemoteAddr()}
	if source, _, ok := header.TCPAddrs(); ok && header.Command.IsProxy() {
		conn.client = source
	}
	if rest := b[size:]; len(rest) > 0 {
		conn.first = bytes.Clone(rest)
	}
	return conn, nil
}
