// Package python runs FastStream and Taskiq with their brokers for Service Bus, as they are published, against three members.
package python

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const within = 5 * time.Minute

func TestMain(m *testing.M) { harness.Main(m) }

func TestFrameworks(t *testing.T) {
	t.Parallel()
	environment := os.Getenv("PEEKLOCK_PYTHON")
	if environment == "" {
		t.Skip("FastStream and Taskiq are left out: `bash run` in this folder installs what they need and runs them")
	}
	cluster := harness.Start(t, harness.Options{Members: 3, Args: []string{"--trust-loopback"}})
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(environment, "bin/python"), "-B", "-m", "pytest", "-p", "no:cacheprovider", "-v", ".")
	cmd.Env = append(os.Environ(), "CONNECTION_STRING="+cluster.Members[1].ConnectionString(), "ADMIN=http://"+cluster.Members[2].Admin)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}
