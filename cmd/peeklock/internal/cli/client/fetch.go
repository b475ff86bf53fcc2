package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// fetchTimeMax is the time for an answer to [Client.Fetch].
const fetchTimeMax = 5 * time.Second

// Fetched is the answer of one member.
type Fetched struct {
	Status          int
	Body            []byte
	Date            time.Time // of the member; zero: it gave none
	CertificateEnds time.Time // zero without TLS
}

// Fetch gets a path from one member, whatever the status. base is a URL without a trailing slash or a control socket.
func (c *Client) Fetch(ctx context.Context, base, path string) (Fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeMax)
	defer cancel()
	r, err := c.request(ctx, http.MethodGet, base, path, nil)
	if err != nil {
		return Fetched{}, err
	}
	response, err := c.do(r)
	if err != nil {
		if dial := dialError(err); dial != nil {
			err = dial
		}
		return Fetched{}, err
	}
	defer func() { _ = response.Body.Close() }()
	f := Fetched{Status: response.StatusCode}
	if f.Body, err = io.ReadAll(io.LimitReader(response.Body, answerBytesMax)); err != nil {
		return Fetched{}, fmt.Errorf("read the answer of %s: %w", base, err)
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		f.Date = at
	}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		f.CertificateEnds = response.TLS.PeerCertificates[0].NotAfter
	}
	return f, nil
}
