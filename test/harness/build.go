package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

const binaryVariable = "PEEKLOCK_TEST_BINARY" // binary for a test in a network: it need not build one

// binaryOnce builds the binary on first use and returns its path.
var binaryOnce = sync.OnceValues(build) //nolint:gochecknoglobals // one binary for all tests of a process

// binaryFolder holds the binary of this test process; empty until it is built.
var binaryFolder struct { //nolint:gochecknoglobals // as above: Main removes it after the last test
	sync.Mutex
	path string
}

// Main runs the tests of a package that uses the harness, and removes the binary
// afterwards. Call it from TestMain.
func Main(m *testing.M) {
	defer func() {
		binaryFolder.Lock()
		defer binaryFolder.Unlock()
		if binaryFolder.path != "" {
			_ = os.RemoveAll(binaryFolder.path)
		}
	}()
	m.Run()
}

// build compiles cmd/peeklock, with the race detector when the test has it.
func build() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return path, nil // built by the parent process
	}
	dir, err := os.MkdirTemp("", "peeklock-test-")
	if err != nil {
		return "", err
	}
	binaryFolder.Lock()
	binaryFolder.path = dir
	binaryFolder.Unlock()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/peeklock/peeklock").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	binary := filepath.Join(dir, "peeklock")
	args := []string{"build", "-o", binary}
	if kit.RaceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/peeklock")...)
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build peeklock: %w\n%s", err, out)
	}
	return binary, nil
}

// Binary returns the path of the peeklock binary, built from this module.
func Binary(t testing.TB) string {
	t.Helper()
	path := kit.Must(binaryOnce())(t)
	return path
}
