package foreign

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const inUseTimeout = 90 * time.Second // a scenario that waits for its turn waits for another one of few

// clusterOperator does for scenarios what a process of its own cannot be asked for over the
// network. One scenario has the doomed member at a time; others wait.
//
//	POST /doomed  starts it and answers with its connection string
//	POST /kill    kills it
type clusterOperator struct {
	url   string
	inUse chan struct{}                           // holds one while somebody has the member
	tasks chan func(*testing.T, *harness.Cluster) // for the goroutine of the test
}

// newClusterOperator listens until the test ends.
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

// do has a task done by the goroutine of the test, which alone may fail it.
func (o *clusterOperator) do(ctx context.Context, task func(*testing.T, *harness.Cluster)) {
	done := make(chan struct{})
	select {
	case o.tasks <- func(t *testing.T, c *harness.Cluster) { defer close(done); task(t, c) }:
		<-done
	case <-ctx.Done():
	}
}

// serve does tasks until the suite has ended.
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
