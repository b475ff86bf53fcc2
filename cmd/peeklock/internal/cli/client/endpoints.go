package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/peeklock/peeklock/admin/api"
)

// Endpoints returns the AMQP addresses of the members, live members first.
func (c *Client) Endpoints(ctx context.Context) ([]string, error) {
	var list api.Endpoints
	base, err := c.callVia(ctx, http.MethodGet, "/v1/endpoints", nil, &list)
	if err != nil {
		return nil, err
	}
	via, err := c.recordControlAddress(base, list)
	if err != nil {
		return nil, err
	}
	var alive, others []string
	for _, m := range list.Members {
		host, port, err := net.SplitHostPort(m.AMQP)
		if err != nil {
			continue // the member has not announced its address yet
		}
		// A member that listens on all addresses cannot know the name by which clients reach it.
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = via
		}
		address := net.JoinHostPort(host, port)
		if m.State == "alive" {
			alive = append(alive, address)
		} else {
			others = append(others, address)
		}
	}
	if len(alive)+len(others) == 0 {
		return nil, fmt.Errorf("%s knows no AMQP address of any member", base)
	}
	return append(alive, others...), nil
}

// recordControlAddress records the address at which a member has answered and returns its host.
func (c *Client) recordControlAddress(base string, list api.Endpoints) (host string, err error) {
	if _, ok := socketPath(base); ok {
		c.usesTLS, c.controlAddress = list.RequireTLS, ""
		return SocketHost, nil
	}
	via, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", base, err)
	}
	c.usesTLS, c.controlAddress = via.Scheme == "https", via.Host
	if via.Port() == "" {
		port := "80"
		if c.usesTLS {
			port = "443"
		}
		c.controlAddress = net.JoinHostPort(via.Hostname(), port)
	}
	return via.Hostname(), nil
}
