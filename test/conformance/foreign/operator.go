package foreign

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const turnWithin = 90 * time.Second // a scenario that waits for its turn waits for another one of few

// operator does for scenarios what a process of its own cannot be asked for over the
// network. One scenario has the doomed member at a time; others wait.
//
//	POST /doomed  starts it and answers with its connection string
//	POST /kill    kills it
type operator struct {
	url   string
	turn  chan struct{}                           // holds one while somebody has the member
	tasks chan func(*testing.T, *harness.Cluster) // for the goroutine of the test
}

// newOperator listens until the test ends.
func newOperator(ctx context.Context, t *testing.T) *operator {
	t.Helper()
	o := &operator{turn: make(chan struct{}, 1), tasks: make(chan func(*testing.T, *harness.Cluster))}
	var doomed *harness.Doomed
	mux := http.NewServeMux()
	mux.HandleFunc("POST /doomed", func(w http.ResponseWriter, _ *http.Request) {
		turn := time.NewTimer(turnWithin)
		defer turn.Stop()
		select {
		case o.turn <- struct{}{}:
		case <-turn.C:
			http.Error(w, "another scenario has not killed its member yet", http.StatusConflict)
			return
		case <-ctx.Done():
			return
		}
		o.do(ctx, func(t *testing.T, c *harness.Cluster) { //nolint:contextcheck // the harness takes that of the test
			doomed = c.Doomed(t)
			_, _ = w.Write([]byte(harness.ConnectionString(doomed.Address)))
		})
	})
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) {
		o.do(ctx, func(_ *testing.T, c *harness.Cluster) { doomed.Kill(c) })
		<-o.turn
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

// do has a task done by the goroutine of the test, which alone may fail it.
func (o *operator) do(ctx context.Context, task func(*testing.T, *harness.Cluster)) {
	done := make(chan struct{})
	select {
	case o.tasks <- func(t *testing.T, c *harness.Cluster) { defer close(done); task(t, c) }:
		<-done
	case <-ctx.Done():
	}
}

// serve does tasks until the suite has ended.
func (o *operator) serve(t *testing.T, cluster *harness.Cluster, ended <-chan error) error {
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
