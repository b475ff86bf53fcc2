// Package tracing runs the official client for Python with its tracing against three members, all of which export their spans to a
// stand-in collector.
package tracing

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const within = 3 * time.Minute

func TestMain(m *testing.M) { harness.Main(m) }

// TestTraceOfAMessageHasTheSpansOfClientAndMembers sends at one member and receives at another.
func TestTraceOfAMessageHasTheSpansOfClientAndMembers(t *testing.T) {
	t.Parallel()
	environment := os.Getenv("PEEKLOCK_PYTHON")
	if environment == "" {
		t.Skip("the client with tracing is left out: `bash run` in this folder installs it and runs it")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the script listens on its port
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	cluster := harness.Start(t, harness.Options{Members: 3, Args: []string{"--trust-loopback", "--otlp-endpoint", "http://127.0.0.1:" + port}})
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(environment, "bin/python"), "-B", "orders.py")
	cmd.Env = append(os.Environ(), "CONNECTION_STRING="+cluster.Members[1].ConnectionString(), "ADMIN=http://"+cluster.Members[2].Admin, "COLLECTOR_PORT="+port)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}
