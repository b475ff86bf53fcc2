// Package cloudevents runs the AMQP protocol of CloudEvents' Go SDK, as it is published, against three members. The program is a
// module of its own in the folder events, because the SDK needs another version of go-amqp than Peeklock does.
package cloudevents

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const within = 5 * time.Minute

func TestMain(m *testing.M) { harness.Main(m) }

func TestEvents(t *testing.T) {
	t.Parallel()
	if os.Getenv("PEEKLOCK_CLOUDEVENTS") == "" {
		t.Skip("the SDK of CloudEvents is left out: `bash run` in this folder fetches and runs it")
	}
	cluster := harness.Start(t, harness.Options{Members: 3, Args: []string{"--trust-loopback"}})
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", ".")
	cmd.Dir = "events"
	cmd.Env = append(os.Environ(), "SENDING=amqp://"+cluster.Members[0].AMQP, "RECEIVING=amqp://"+cluster.Members[1].AMQP,
		"ADMIN=http://"+cluster.Members[2].Admin, "KEY_NAME="+harness.KeyName, "KEY="+harness.Key)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}
