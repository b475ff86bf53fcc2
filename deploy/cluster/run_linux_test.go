package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// attempt calls a function of run with a kubectl that notes its arguments and fails, as that of a cluster that does not answer does.
// It returns what kubectl was called with.
func attempt(t *testing.T, function ...string) (calls string, err error) {
	t.Helper()
	dir := t.TempDir()
	kubectl := "#!/bin/sh\necho \"$@\" >>" + dir + "/calls\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "bash", append([]string{"run"}, function...)...)
	run.Env = append(os.Environ(), "inside=attempt", "work="+dir, "PEEKLOCK_KUBERNETES_CACHE="+dir)
	output, err := run.CombinedOutput()
	if err != nil {
		t.Logf("%s", output)
	}
	noted, failed := os.ReadFile(filepath.Join(dir, "calls"))
	if failed != nil {
		t.Fatal(failed)
	}
	return string(noted), err
}

// TestKEDAIsRemovedAlthoughItsStateCannotBeShown: an API without a server would disturb all scenarios that follow.
func TestKEDAIsRemovedAlthoughItsStateCannotBeShown(t *testing.T) {
	t.Parallel()
	if calls, _ := attempt(t, "remove_keda"); !strings.Contains(calls, "delete -k") {
		t.Errorf("called:\n%s", calls)
	}
}

// TestACertificateThatCannotBeReadIsNotRenewed: the scenario would count a renewal that has not happened.
func TestACertificateThatCannotBeReadIsNotRenewed(t *testing.T) {
	t.Parallel()
	if _, err := attempt(t, "renewed", "clients", "sha256 Fingerprint=00"); err == nil {
		t.Error("it counts as renewed")
	}
}
