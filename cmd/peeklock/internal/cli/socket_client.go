package cli

import (
	"context"
	"net"
	"net/http"
	"strings"
)

const (
	// SocketScheme begins the address of a control socket; what follows is its path as it is.
	SocketScheme = "unix://"
	// SocketHost is the host of requests through a socket: it selects the default namespace.
	SocketHost = "localhost"
)

// socketPath is the path in the address of a control socket.
func socketPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, SocketScheme)
}

// socketKey is the context key of the path of the socket that a request is sent to.
type socketKey struct{}

// socketClient returns an HTTP client for a control socket. It keeps no idle connections, because new ones are cheap.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}
