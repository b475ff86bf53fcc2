package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"testing"
)

// UpdateQueue changes settings of a queue through the first running member, and fails the
// test when it cannot. Once it returns, the change holds at every member.
func (c *Cluster) UpdateQueue(t testing.TB, name string, change Fields) {
	t.Helper()
	if err := c.Running()[0].Call(t.Context(), http.MethodPatch, "/v1/queues/"+url.PathEscape(name), change, nil); err != nil {
		t.Fatal(err)
	}
}

// Call sends in, as JSON, to the control API of a member and reads the answer into out;
// either may be nil. An answer that is no success is an error which holds its text.
func (m *Member) Call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := m.request(ctx, method, path, bytes.NewReader(body))
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// Command runs the binary as a client of a member, with JSON for output, and returns
// what it prints.
func (m *Member) Command(ctx context.Context, args ...string) (string, error) {
	path, err := built()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, append(args,
		"--server", "http://"+m.Admin, "--key-name", KeyName, "--key", Key, "--output", "json")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("peeklock %v: %w: %s", args, err, said.String())
	}
	return string(out), nil
}
