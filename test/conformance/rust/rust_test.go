// Package rust runs the crate azservicebus as it is published against three members. The scenarios are the modules in
// src; libtest runs them. The crate connects to standard ports only, so the suite needs a network namespace of its
// own: the script run makes one.
package rust

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// namespaceVariable is set in the network namespace that the script run makes.
const namespaceVariable = "PEEKLOCK_OWN_NETWORK"

// allPassed finds the summary of the report when nothing failed and nothing was left out.
var allPassed = regexp.MustCompile(`<testsuite [^>]*errors="0" failures="0" tests="[1-9]\d*" skipped="0"`)

func TestMain(m *testing.M) { harness.Main(m) }

func TestCrate(t *testing.T) {
	t.Parallel()
	foreign.Need(t, "the Rust client", func() error {
		if os.Getenv(namespaceVariable) == "" {
			return fmt.Errorf("not in a network namespace of its own (%s)", namespaceVariable)
		}
		_, err := exec.LookPath("cargo")
		return err
	})
	binary := build(t)
	folder := t.TempDir()
	// One case at a time: under load, the crate loses outcomes (see LATENCY in src/support.rs).
	// The report in JUnit's format is an option that libtest calls unstable. OpenSSL takes the authority from
	// SSL_CERT_FILE.
	script := `set -o pipefail
export RUSTC_BOOTSTRAP=1 RUST_BACKTRACE=1 SSL_CERT_FILE=$PEEKLOCK_CA
"$0" -Z unstable-options --format junit --nocapture --test-threads 1 ${PEEKLOCK_CASES:-} | tee report.xml`
	foreign.Run(t, foreign.Suite{
		Name: "rust", Folder: folder, Passed: allPassed, Reports: "report.xml",
		Case:    func(class, name string) string { return class + "::" + name },
		Command: []string{"bash", "-c", script, binary},
	})
}

// build compiles the cases into the user's cache and returns the path of the program that runs them.
func build(t *testing.T) string {
	t.Helper()
	cache := kit.Must(os.UserCacheDir())(t)
	cmd := exec.CommandContext(t.Context(), "cargo", "test", "--no-run", "--locked", "--offline", "--message-format", "json-render-diagnostics")
	cmd.Env = append(os.Environ(), "CARGO_TARGET_DIR="+filepath.Join(cache, "peeklock", "conformance-rust"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cargo: %v", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var line struct {
			Executable string `json:"executable"`
			Profile    struct {
				Test bool `json:"test"`
			} `json:"profile"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Profile.Test && line.Executable != "" {
			return line.Executable
		}
	}
	t.Fatal("cargo names no program")
	return ""
}
