package listen

import (
	"bytes"
	"strings"

	"github.com/pires/go-proxyproto"
)

// protocol is the protocol that the first bytes of a connection show.
type protocol uint8

const (
	protocolUnknown protocol = iota // more bytes are needed
	protocolAMQP
	protocolTLS
	protocolHTTP
	protocolWebSocket // HTTP with the path of AMQP over WebSocket
	protocolProxy     // a PROXY protocol header where none is expected
)

// firstBytesMax is how many bytes are examined. A request line with a longer target counts as HTTP, whose server
// answers with the reason.
const firstBytesMax = 1024

// webSocketPath is the path at which the cloud service accepts AMQP over WebSocket; .NET adds a slash.
const webSocketPath = "/$servicebus/websocket"

// classify detects the protocol by the first bytes. More bytes never change a result other than protocolUnknown,
// and firstBytesMax bytes are always enough.
//
// Bytes of no other protocol go to the gateway: it answers an unknown header with the header of the version that
// it supports (part 2, 2.2).
func classify(first []byte) protocol {
	const header, get = "AMQP", "GET "
	switch {
	case len(first) == 0:
		return protocolUnknown
	case first[0] == 0x16: // a handshake record, version 3.x (RFC 8446, 5.1)
		if len(first) == 1 {
			return protocolUnknown
		}
		if first[1] == 3 {
			return protocolTLS
		}
		return protocolAMQP
	case bytes.HasPrefix(first, proxyproto.SIGV1), bytes.HasPrefix(first, proxyproto.SIGV2):
		return protocolProxy
	case bytes.HasPrefix(proxyproto.SIGV1, first), bytes.HasPrefix(proxyproto.SIGV2, first):
		return protocolUnknown
	case first[0] < 'A' || first[0] > 'Z':
		return protocolAMQP
	case bytes.HasPrefix(first, []byte(header)):
		return protocolAMQP
	case strings.HasPrefix(header, string(first)), strings.HasPrefix(get, string(first)):
		return protocolUnknown
	case bytes.HasPrefix(first, []byte(get)):
		if p := classifyTarget(first[len(get):]); p != protocolUnknown || len(first) < firstBytesMax {
			return p
		}
	}
	return protocolHTTP
}

// classifyTarget distinguishes AMQP over WebSocket from other requests by the target of a GET request. Most
// clients send a path. The Java client sends the whole URL, as if to a proxy.
func classifyTarget(b []byte) protocol {
	end := bytes.IndexAny(b, " \r\n")
	if end < 0 {
		if len(b) > 0 && b[0] == '/' && !mayBecomeWebSocketPath(string(b)) {
			return protocolHTTP // the usual case, which does not need the whole line
		}
		return protocolUnknown
	}
	path := string(b[:end])
	if _, rest, ok := strings.Cut(path, "://"); ok && path[0] != '/' {
		slash := strings.IndexByte(rest, '/')
		path = rest[max(slash, 0):]
	}
	path, _, _ = strings.Cut(path, "?")
	if isWebSocketPath(path) {
		return protocolWebSocket
	}
	return protocolHTTP
}

// isWebSocketPath compares paths as the router of the service does: the dollar sign may be escaped.
func isWebSocketPath(path string) bool {
	path = strings.TrimSuffix(path, "/")
	return strings.EqualFold(path, webSocketPath) || strings.EqualFold(path, escapedPath())
}

// mayBecomeWebSocketPath reports whether a path that begins with b may still be the path of AMQP over WebSocket.
func mayBecomeWebSocketPath(b string) bool {
	for _, full := range []string{webSocketPath, escapedPath()} {
		if n := min(len(b), len(full)); strings.EqualFold(b[:n], full[:n]) {
			return true
		}
	}
	return false
}

func escapedPath() string { return strings.Replace(webSocketPath, "$", "%24", 1) }
