package upgrade_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/upgrade"
)

// TestNextRelease builds the next release and runs the tests that need it: levels are tested before there is a second one.
func TestNextRelease(t *testing.T) {
	t.Parallel()
	testNextRelease(t, "./fsm", "./partition")
}

// TestClustersOfTheNextRelease does the same with whole clusters, whose tests take long to build.
func TestClustersOfTheNextRelease(t *testing.T) {
	t.Parallel()
	kit.Long(t)
	testNextRelease(t, "./cluster", "./test/sim")
}

func testNextRelease(t *testing.T, packages ...string) {
	t.Helper()
	overlay := kit.Must(upgrade.Write(t.TempDir()))(t)
	args := []string{"test", "-overlay", overlay, "-tags", upgrade.Tag, "-count=1", "-run", "NextLevel|TestCommandsWaitForTheirLevel|TestPartitionsFollowTheLevel"}
	cmd := exec.CommandContext(t.Context(), "go", append(args, packages...)...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}
