package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// TestServersOtherThanMembersAreQuoted: a proxy, and a port with or without TLS, say themselves what is wrong.
func TestServersOtherThanMembersAreQuoted(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no upstream\x1b[2J is healthy", http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	for address, want := range map[string]string{
		proxy.URL: `status 502, "no upstream\\x1b[2J is healthy"`,
		strings.Replace(proxy.URL, "http:", "https:", 1):  "the server does not use TLS: write http:// instead of https://",
		strings.Replace(secure.URL, "https:", "http:", 1): "requires TLS: write https:// instead of http://",
	} {
		c := &Client{Process: cli.Process{Env: []string{"PEEKLOCK_SERVER=" + address}}}
		err := c.Call(t.Context(), http.MethodGet, "/v1/queues", nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "from PEEKLOCK_SERVER)") {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}

// TestErrorsNameTheMissingQuorum: at night, "no answer" is not enough.
func TestErrorsNameTheMissingQuorum(t *testing.T) {
	t.Parallel()
	st := topology.Status{
		Members:    []topology.Member{{ID: "1", Name: "a", State: topology.Alive}, {ID: "2", Name: "b", State: topology.Dead}, {ID: "3", Name: "c", State: topology.Dead}},
		Partitions: []topology.Partition{{ID: 1, Replicas: []fsm.MemberID{"1", "2", "3"}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, st) }))
	t.Cleanup(server.Close)
	c := &Client{Servers: []string{server.URL}}
	if err := c.WithCause(cli.Unknown(errors.New("no answer"))); !cli.IsUnknown(err) || err.Error() != "no answer: NO QUORUM: 1 of 1 partitions; waiting for b, c" {
		t.Error(err)
	}
	st.Partitions[0].Leader = "1"
	if err := c.WithCause(io.EOF); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("with a leader: %v", err)
	}
	server.Close()
	if err := c.WithCause(io.EOF); err.Error() != "EOF" {
		t.Errorf("nobody answers: %v", err)
	}
}
