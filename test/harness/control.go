package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Call sends in as JSON to the control API of a member and decodes the answer into out;
// either may be nil. Any answer but success is an error with the text of the answer.
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

// Metrics reads values of a member's /metrics, with labels, if they have any, as they are written there.
func (m *Member) Metrics(ctx context.Context, names ...string) (map[string]float64, error) {
	page, err := m.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(names, name) {
			continue
		}
		if found[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("figure %s of %s: %w", name, m.Name, err)
		}
	}
	if len(found) != len(names) {
		return nil, fmt.Errorf("%s shows %d of the figures %v", m.Name, len(found), names)
	}
	return found, nil
}

// MetricSum reads the sum of all values of a metric on a member's /metrics, whatever their labels.
func (m *Member) MetricSum(ctx context.Context, name string) (sum float64, err error) {
	page, err := m.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(page)) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(sample, "{"); family != name {
			continue
		}
		one, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("figure %s of %s: %w", sample, m.Name, err)
		}
		sum += one
	}
	return sum, nil
}

// Command runs the binary as a client of a member, with JSON for output, and returns
// what it prints.
func (m *Member) Command(ctx context.Context, args ...string) (string, error) {
	path, err := binaryOnce()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, append(args,
		"--server", "http://"+m.Admin, "--key-name", KeyName, "--key", m.secret(), "--output", "json")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("peeklock %v: %w: %s", args, err, said.String())
	}
	return string(out), nil
}
