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
	overlay := kit.Must(upgrade.Write(t.TempDir()))(t)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-tags", upgrade.Tag, "-count=1", "-run", "NextLevel|TestCommandsWaitForTheirLevel|TestPartitionsFollowTheLevel", "./fsm", "./partition", "./cluster", "./test/sim")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}
