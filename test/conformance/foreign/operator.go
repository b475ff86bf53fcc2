package foreign

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const inUseTimeout = 90 * time.Second // longer than the few other scenarios that may use the member first

// clusterOperator does for scenarios what they cannot do over the network: start and kill a
// member. One scenario at a time has the member; others wait.
//
//	POST /doomed  starts it and answers with its connection string
//	POST /kill    kills it
type clusterOperator struct {
	url   string
	inUse chan struct{}                           // holds one value while a scenario has the member
	tasks chan func(*testing.T, *harness.Cluster) // for the goroutine of the test
}

// newClusterOperator starts a server that stops at the end of the test.
func newClusterOperator(ctx context.Context, t *testing.T) *clusterOperator {
	t.Helper()
	o := &clusterOperator{inUse: make(chan struct{}, 1), tasks: make(chan func(*testing.T, *harness.Cluster))}
	var doomed *harness.Killable
	mux := http.NewServeMux()
	mux.HandleFunc("POST /doomed", func(w http.ResponseWriter, _ *http.Request) {
		turn := time.NewTimer(inUseTimeout)
		defer turn.Stop()
		select {
		case o.inUse <- struct{}{}:
		case <-turn.C:
			http.Error(w, "another scenario has not killed its member yet", http.StatusConflict)
			return
		case <-ctx.Done():
			return
		}
		o.do(ctx, func(t *testing.T, c *harness.Cluster) { //nolint:contextcheck // the harness takes that of the test
			doomed = c.StartKillable(t)
			_, _ = w.Write([]byte(harness.ConnectionString(doomed.Address)))
		})
	})
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) {
		o.do(ctx, func(_ *testing.T, c *harness.Cluster) { doomed.Kill(c) })
		<-o.inUse
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

// do runs a task in the goroutine of the test, because only that one may fail the test.
func (o *clusterOperator) do(ctx context.Context, task func(*testing.T, *harness.Cluster)) {
	done := make(chan struct{})
	select {
	case o.tasks <- func(t *testing.T, c *harness.Cluster) { defer close(done); task(t, c) }:
		<-done
	case <-ctx.Done():
	}
}

// serve runs tasks until the suite has ended.
func (o *clusterOperator) serve(t *testing.T, cluster *harness.Cluster, ended <-chan error) error {
	t.Helper()
	for {
		select {
		case task := <-o.tasks:
			task(t, cluster)
		case err := <-ended:
			return err
		}
	}
}
