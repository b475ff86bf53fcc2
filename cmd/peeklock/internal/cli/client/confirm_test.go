package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// TestOnATerminalTheNameConfirms: the cluster is named before what destroys, and only the typed name confirms it. Without a
// terminal there is nobody to ask.
func TestOnATerminalTheNameConfirms(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, topology.Status{ClusterID: "c1"})
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct {
		typed     string
		yes, asks bool
		done      bool
	}{
		{"orders\n", false, true, true},
		{"orders", false, true, true},
		{"order\n", false, true, false},
		{"", false, true, false},
		{"", true, true, true},
		{"orders\n", false, false, false},
		{"", true, false, true},
	} {
		var errs kit.LogLines
		p := cli.Process{In: strings.NewReader(c.typed), Err: &errs, Env: []string{"PEEKLOCK_SERVER=" + server.URL}, Asks: c.asks, Interactive: c.asks}
		err := (&Client{Process: p}).Confirm(t.Context(), c.yes, "orders", "deletes queue orders")
		if (err == nil) != c.done || err != nil && !cli.IsUsage(err) {
			t.Errorf("%+v: %v", c, err)
		}
		if want := "This deletes queue orders in cluster c1 at " + server.URL + " (PEEKLOCK_SERVER).\n"; c.asks != strings.Contains(errs.String(), want) {
			t.Errorf("%+v: %q", c, errs.String())
		}
	}
}
