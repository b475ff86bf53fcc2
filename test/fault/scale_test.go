package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	scaledQueues   = 6
	scaledMessages = 50 // in each queue
	preStopWithin  = 3 * time.Minute
)

// podEnvironment is the environment of a container whose StatefulSet has two replicas, numbered from 1.
func podEnvironment(t *testing.T, m *harness.Member) (env []string, account string) {
	t.Helper()
	env, account = kit.KubernetesAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/queues/statefulsets/member" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"spec":{"replicas":2,"ordinals":{"start":1}}}`))
	})
	return append(env, "PEEKLOCK_NAME="+m.Name, "PEEKLOCK_DIR="+m.Dir), account
}

// runBinary runs the binary and returns its exit code and output.
func runBinary(t *testing.T, env []string, args ...string) (code int, printed, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), preStopWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// replicasByPartition returns the members that hold a replica of each partition.
func replicasByPartition(ctx context.Context, at *harness.Member) (map[uint32][]string, error) {
	s, err := at.Status(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, m := range s.Members {
		names[m.ID] = m.Name
	}
	held := map[uint32][]string{}
	for _, p := range s.Partitions {
		for _, id := range p.Replicas {
			held[p.ID] = append(held[p.ID], names[id])
		}
		slices.Sort(held[p.ID])
	}
	return held, nil
}

// A scale-down of the chart: the preStop hook of the removed pod, in its container, where TLS is
// required and no address is trusted, first moves the data of its member to the others; then the member ends.
func TestScaleDownMovesData(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	files := kit.Must(listen.Development(t.TempDir()))(t)
	c := harness.Start(t, harness.Options{Args: []string{"--tls-cert", files.Cert, "--tls-key", files.Key, "--require-tls"}})
	stays, goes := c.Members[0], c.Members[2]
	for i := range scaledQueues {
		name := fmt.Sprint("scaled-", i)
		c.CreateQueue(t, name, harness.Settings{})
		code, _, said := runBinary(t, nil, "--server", goes.Socket(), "--ca", files.CA, "message", "send", name, "--size", "100", "--count", fmt.Sprint(scaledMessages))
		if code != 0 {
			t.Fatal(code, said)
		}
	}
	before, err := replicasByPartition(t.Context(), stays)
	if err != nil || len(before) == 0 || !slices.ContainsFunc(slices.Collect(maps.Values(before)), func(held []string) bool { return slices.Contains(held, goes.Name) }) {
		t.Fatal(before, err)
	}

	env, account := podEnvironment(t, goes)
	hook := []string{"kubernetes", "prestop", "--statefulset", "member", "--account", account, "--forget", "1ms"}
	// The admin address grants no access without a key, and the hook reports that it failed.
	if code, _, said := runBinary(t, env, append([]string{"--server", "http://" + goes.Admin}, hook...)...); code == 0 || !strings.Contains(said, "Use TLS") && !strings.Contains(said, "status 400") {
		t.Fatal(code, said)
	}
	if held, err := replicasByPartition(t.Context(), stays); err != nil || !slices.Equal(held[1], before[1]) {
		t.Fatal(held, before, err)
	}
	code, _, said := runBinary(t, env, append([]string{"--server", goes.Socket()}, hook...)...)
	if code != 0 || !strings.Contains(said, "its data is with others") {
		t.Fatal(code, said)
	}
	goes.WaitEnded()

	for _, m := range c.Running() {
		harness.Eventually(t, confirmsWithin, m.Name+" knows where every partition is", func(ctx context.Context) error {
			held, err := replicasByPartition(ctx, m)
			if err != nil {
				return err
			}
			for id, names := range held {
				if !slices.Equal(names, []string{c.Members[0].Name, c.Members[1].Name}) {
					return fmt.Errorf("partition %d is at %v", id, names)
				}
			}
			if len(held) != len(before) {
				return fmt.Errorf("%d partitions of %d", len(held), len(before))
			}
			return nil
		})
	}
	c.WaitLed(t)
	left, err := filepath.Glob(filepath.Join(goes.Dir, "groups", "[1-9]*")) // 0 is the catalog, which stays on the disk
	if err != nil || len(left) != 0 {
		t.Errorf("left in the folder of the member that went: %q, %v", left, err)
	}
	for i := range scaledQueues {
		code, printed, said := runBinary(t, nil, "--server", c.Members[1].Socket(), "--ca", files.CA, "-o", "json", "message", "receive", fmt.Sprint("scaled-", i), "--count", fmt.Sprint(scaledMessages), "--wait", "60s")
		got := 0
		for line := range strings.Lines(printed) {
			if json.Valid([]byte(line)) {
				got++
			}
		}
		if code != 0 || got != scaledMessages {
			t.Errorf("queue %d: %d messages, exit code %d: %s", i, got, code, said)
		}
	}
}
