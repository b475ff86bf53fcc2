package client

import (
	"context"
	"net"
	"net/http"
	"strings"
)

const (
	// SocketScheme begins the address of a control socket. The rest of the address is the path, unescaped.
	SocketScheme = "unix://"
	// SocketHost is the host name of requests through a socket; it selects the default namespace.
	SocketHost = "localhost"
)

// socketPath returns the path from the address of a control socket.
func socketPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, SocketScheme)
}

// socketKey is the context key for the path of the socket that receives a request.
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
