// Package js runs the official JavaScript client, @azure/service-bus, as it is published
// against three members. The scenarios are the *.test.mjs files beside this one, each
// named after the promise that it shows; they run under node's own test runner.
//
// A plain `go test ./...` leaves them out, because npm reaches for the network. Set
// PEEKLOCK_CONFORMANCE to run them: to "require" to fail when node or npm is missing, to
// anything else to skip then. PEEKLOCK_FEATURES, when it is set, names the
// groups of scenarios to run beyond the basic ones; else all run that are to pass.
package js

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	runVariable = "PEEKLOCK_CONFORMANCE"
	required    = "require"
	// The oldest node that can be told not to wait for what a failed scenario left open;
	// the same in package.json.
	nodeMajor, nodeMinor = 20, 14
	// The scenarios wait for locks to end; all of them together take about a minute.
	suiteWithin   = 6 * time.Minute
	installWithin = 3 * time.Minute
)

// somePassed finds the line of node's summary that counts what passed.
var somePassed = regexp.MustCompile(`(?m)^\S* ?pass [1-9]\d*$`)

func TestMain(m *testing.M) { harness.Main(m) }

func TestOfficialClient(t *testing.T) {
	t.Parallel()
	node, npm := tools(t)
	folder := prepare(t, npm)
	cluster := harness.Start(t, harness.Options{})

	ctx, cancel := context.WithTimeout(t.Context(), suiteWithin)
	defer cancel()
	var report bytes.Buffer
	cmd := exec.CommandContext(ctx, node, "--test", "--test-force-exit", "--test-reporter=spec")
	cmd.Dir = folder
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &report), os.Stderr
	cmd.Env = os.Environ()
	for i, m := range cluster.Members {
		n := strconv.Itoa(i + 1)
		cmd.Env = append(cmd.Env, "PEEKLOCK_MEMBER_"+n+"="+m.ConnectionString(), "PEEKLOCK_ADMIN_"+n+"=http://"+m.Admin)
	}
	if err := cmd.Run(); err != nil {
		t.Errorf("the scenarios, reported above: %v", err)
	}
	if !somePassed.Match(report.Bytes()) {
		t.Error("no scenario passed: a run of nothing is no success either")
	}
}

// tools finds node and npm, or ends the test in the way that PEEKLOCK_CONFORMANCE says.
func tools(t *testing.T) (node, npm string) {
	t.Helper()
	mode := os.Getenv(runVariable)
	if mode == "" {
		t.Skipf("the official JavaScript client is left out: %s=%s go test ./test/conformance/js runs it, with node %d.%d or newer and npm", runVariable, required, nodeMajor, nodeMinor)
	}
	node, err := exec.LookPath("node")
	if err == nil {
		err = newEnough(node)
	}
	npm, npmErr := exec.LookPath("npm")
	if err = errors.Join(err, npmErr); err != nil {
		if mode == required {
			t.Fatal(err)
		}
		t.Skipf("the official JavaScript client is left out: %v", err)
	}
	return node, npm
}

// newEnough checks the version of node.
func newEnough(node string) error {
	out, err := exec.Command(node, "--version").Output()
	if err != nil {
		return fmt.Errorf("version of node: %w", err)
	}
	version := strings.TrimSpace(string(out))
	var major, minor int
	if _, err := fmt.Sscanf(version, "v%d.%d.", &major, &minor); err != nil {
		return fmt.Errorf("version %q of node: %w", version, err)
	}
	if major < nodeMajor || major == nodeMajor && minor < nodeMinor {
		return fmt.Errorf("node is %s, v%d.%d or newer is needed", version, nodeMajor, nodeMinor)
	}
	return nil
}

// prepare returns a folder of this test that holds the scenarios and, by a link, the
// packages that the lock file names.
func prepare(t *testing.T, npm string) string {
	t.Helper()
	packages := install(t, npm)
	folder := t.TempDir()
	for _, pattern := range []string{"*.mjs", "package.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, name := range found {
			copyFile(t, name, filepath.Join(folder, name))
		}
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(folder, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// install runs `npm ci` in the user's cache folder, once for each content of the lock
// file. The packages stay out of the repository, where other checks read every text.
func install(t *testing.T, npm string) string {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	done := filepath.Join(cache, "peeklock", "conformance-js-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(done); err == nil {
		return done
	}
	if err := os.MkdirAll(filepath.Dir(done), 0o755); err != nil {
		t.Fatal(err)
	}
	// Beside its final place: only a whole installation gets the name.
	fresh, err := os.MkdirTemp(filepath.Dir(done), "installing-") //nolint:usetesting // it is renamed, which needs the same file system
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		copyFile(t, name, filepath.Join(fresh, name))
	}
	ctx, cancel := context.WithTimeout(t.Context(), installWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci")
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	if err := os.Rename(fresh, done); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(done); there != nil { // nobody else was faster
			t.Fatal(err)
		}
	}
	return done
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
