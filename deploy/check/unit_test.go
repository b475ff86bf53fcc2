package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	unitFile = "../systemd/peeklock.service"
	userFile = "../systemd/peeklock.sysusers"
)

// TestUnitIsReadBySystemd: systemd understands every line of the unit, and its user is the one of the sysusers file.
func TestUnitIsReadBySystemd(t *testing.T) {
	unit := string(read(t, unitFile))
	if !strings.Contains(unit, "\nUser=peeklock\n") || !strings.Contains(string(read(t, userFile)), "\nu peeklock ") {
		t.Errorf("%s must run as the user of %s", unitFile, userFile)
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing")
	}
	copied := filepath.Join(t.TempDir(), "peeklock.service")
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(unit, "/usr/local/bin/peeklock", "/bin/true")), 0o600); err != nil { // no such program is installed here
		t.Fatal(err)
	}
	if said, err := exec.Command(verify, "verify", "--man=no", copied).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
}
