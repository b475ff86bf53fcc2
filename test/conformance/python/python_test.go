// Package python runs the official Python client, azure-servicebus, as it is published
// against three members. The scenarios are the test_*.py files beside this one; pytest runs
// each with the client that blocks and with the one of asyncio.
package python

import (
	"context"
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

// usable asks whether Python is new enough and can make an environment with pip.
const usable = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"

// allPassed finds pytest's summary when nothing failed and nothing was left out.
var allPassed = regexp.MustCompile(`(?m)^[1-9]\d* passed in `)

func TestMain(m *testing.M) { harness.Main(m) }

func TestOfficialClient(t *testing.T) {
	t.Parallel()
	foreign.Need(t, "the official Python client", func() error {
		if out, err := exec.Command("python3", "-c", usable).CombinedOutput(); err != nil {
			return fmt.Errorf("python3, 3.11 or newer and with venv: %w: %s", err, out)
		}
		return nil
	})
	environment := environment(t)
	files := kit.Must(filepath.Glob("*.py"))(t)
	folder := foreign.Copy(t, append(files, "pytest.ini")...)
	foreign.Run(t, foreign.Suite{
		Name: "python", Folder: folder, Passed: allPassed, Reports: "report.xml",
		Case: func(_, name string) string {
			name, _, _ = strings.Cut(name, "[") // what follows is the kind of client
			return name
		},
		Command: []string{filepath.Join(environment, "bin", "python"), "-B", "-m", "pytest", "--junitxml=report.xml"},
	})
}

// environment returns a virtual environment in the user's cache, with the packages of
// requirements.txt, whose checksums pip verifies.
func environment(t *testing.T) string {
	t.Helper()
	requirements := kit.Must(filepath.Abs("requirements.txt"))(t)
	pins := kit.Must(os.ReadFile(requirements))(t)
	version := kit.Must(exec.Command("python3", "-c", "import sys; print(sys.executable, sys.version)").Output())(t)
	return foreign.Installed(t, "python", append(pins, version...), func(ctx context.Context, at string) error {
		if out, err := exec.CommandContext(ctx, "python3", "-m", "venv", at).CombinedOutput(); err != nil {
			return fmt.Errorf("venv: %w: %s", err, out)
		}
		pip := exec.CommandContext(ctx, filepath.Join(at, "bin", "python"), "-m", "pip", "install",
			"--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:", "-r", requirements)
		if out, err := pip.CombinedOutput(); err != nil {
			return fmt.Errorf("pip install: %w: %s", err, out)
		}
		return nil
	})
}
