// Package js runs the official JavaScript client, @azure/service-bus, as it is published
// against three members. The scenarios are the *.test.mjs files beside this one, each
// named after the promise that it shows; they run under node's own test runner.
// PEEKLOCK_FEATURES, when it is set, names the groups of scenarios to run beyond the basic
// ones; else all run that are to pass.
package js

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// The oldest node that can be told not to wait for what a failed scenario left open; the
// same in package.json.
const nodeMajor, nodeMinor = 20, 14

// somePassed finds the line of node's summary that counts what passed.
var somePassed = regexp.MustCompile(`(?m)^\S* ?pass [1-9]\d*$`)

func TestMain(m *testing.M) { harness.Main(m) }

func TestOfficialClient(t *testing.T) {
	t.Parallel()
	foreign.Need(t, fmt.Sprintf("the official JavaScript client (with node %d.%d or newer and npm)", nodeMajor, nodeMinor), tools)
	scenarios, err := filepath.Glob("*.mjs")
	if err != nil || len(scenarios) == 0 {
		t.Fatalf("no *.mjs: %v", err)
	}
	packages := install(t)
	folder := foreign.Copy(t, append(scenarios, "package.json")...)
	kit.OK(t, os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(folder, "node_modules")))
	foreign.Run(t, foreign.Suite{
		Name: "js", Folder: folder, Passed: somePassed, Reports: "report.xml", Case: func(_, name string) string { return name },
		Command: []string{
			"node", "--test", "--test-force-exit", "--test-reporter=spec", "--test-reporter-destination=stdout",
			"--test-reporter=./reporter.mjs", "--test-reporter-destination=stderr",
		},
	})
}

// tools looks for node and npm.
func tools() error {
	_, err := exec.LookPath("npm")
	return errors.Join(err, newEnough())
}

// newEnough checks the version of node.
func newEnough() error {
	out, err := exec.Command("node", "--version").Output()
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

// install runs `npm ci`, once for each content of the lock file. The packages stay out of
// the repository, where other checks read every text.
func install(t *testing.T) string {
	t.Helper()
	lock := kit.Must(os.ReadFile("package-lock.json"))(t)
	return foreign.Installed(t, "js", lock, func(ctx context.Context, at string) error {
		if err := os.CopyFS(at, os.DirFS(foreign.Copy(t, "package.json", "package-lock.json", ".npmrc"))); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "npm", "ci")
		cmd.Dir = at
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci: %w\n%s", err, out)
		}
		return nil
	})
}
