// Package http runs two retired clients of the service that send and receive over HTTP only, azure-sb of JavaScript and
// azure-servicebus 0.21 of Python, as they are published, against the emulator. They insist on
// https://NAME.servicebus.windows.net: the script inside gives them that name and its port in namespaces of Linux.
package http

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const within = 3 * time.Minute

func TestMain(m *testing.M) { harness.Main(m) }

func TestRetiredClients(t *testing.T) {
	t.Parallel()
	foreign.Need(t, "the retired clients that speak HTTP (with node, npm, Python and unshare)", func() error {
		for _, probe := range [][]string{
			{"npm", "--version"},
			{"python3", "-c", "import ensurepip, venv"},
			{"unshare", "--map-root-user", "--net", "--mount", "ip", "link", "set", "lo", "up"},
		} {
			if out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", probe, err, out)
			}
		}
		return nil
	})
	modules, environment := packages(t), environment(t)
	folder := foreign.Copy(t, "inside", "azure_sb.cjs", "azure_servicebus.py")
	kit.OK(t, os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(folder, "node_modules")))
	for name, command := range map[string][]string{
		"azure-sb":              {"node", "--test", "azure_sb.cjs"},
		"azure-servicebus 0.21": {filepath.Join(environment, "bin", "python"), "-B", "azure_servicebus.py"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			args := append([]string{"--map-root-user", "--net", "--mount", "sh", "inside", harness.Binary(t), t.TempDir(), "ns1"}, command...)
			clients := exec.CommandContext(ctx, "unshare", args...)
			clients.Dir = folder
			out, err := clients.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// packages returns a folder with the packages of package-lock.json.
func packages(t *testing.T) string {
	t.Helper()
	lock := kit.Must(os.ReadFile("package-lock.json"))(t)
	return foreign.Installed(t, "http-js", lock, func(ctx context.Context, at string) error {
		if err := os.CopyFS(at, os.DirFS(foreign.Copy(t, "package.json", "package-lock.json", ".npmrc"))); err != nil {
			return err
		}
		npm := exec.CommandContext(ctx, "npm", "ci")
		npm.Dir = at
		if out, err := npm.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci: %w\n%s", err, out)
		}
		return nil
	})
}

// environment returns a virtual environment with the packages of requirements.txt.
func environment(t *testing.T) string {
	t.Helper()
	requirements := kit.Must(filepath.Abs("requirements.txt"))(t)
	pins := kit.Must(os.ReadFile(requirements))(t)
	return foreign.Installed(t, "http-python", pins, func(ctx context.Context, at string) error {
		for _, step := range [][]string{
			{"python3", "-m", "venv", at},
			{filepath.Join(at, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:", "-r", requirements},
		} {
			if out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", step, err, out)
			}
		}
		return nil
	})
}
