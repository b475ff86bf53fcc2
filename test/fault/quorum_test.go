package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

// Limits of commands without a quorum.
const (
	sendEndsMax  = 15 * time.Second // with the addresses and the search for the cause; 10 s on a machine with nothing else to do
	statusEndMax = 5 * time.Second  // a member answers from what it knows
)

// told is what a command printed, and its exit code.
type told struct {
	out, errs string
	code      int
	took      time.Duration
}

// tell runs a command as a user types it, against one member.
func tell(t *testing.T, m *harness.Member, args ...string) told {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), append(args, "--server", "http://"+m.Admin, "--key-name", harness.KeyName, "--key", harness.Key)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return told{out.String(), errs.String(), cmd.ProcessState.ExitCode(), time.Since(began)}
}

// TestALostQuorumIsSaidAtOnce kills two of three members: the status of the last one begins with the loss and names who is
// missing, its check fails, and a send ends in time, with that cause and an unknown outcome. When one member is back, all is well.
func TestALostQuorumIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	_, leader, others := start(t, harness.Settings{})
	if got := tell(t, leader, "cluster", "status", "--check"); got.code != 0 || !strings.HasPrefix(got.out, "cluster ") {
		t.Fatalf("with all members: exit code %d, %s%s", got.code, got.out, got.errs)
	}
	if got := tell(t, leader, "message", "send", queue, "before"); got.code != 0 {
		t.Fatalf("with all members: exit code %d: %s", got.code, got.errs)
	}
	for _, m := range others {
		m.Kill()
	}
	// The last member led the partition of the queue: it takes the message and cannot confirm it.
	cause := "waiting for " + min(others[0].Name, others[1].Name) + ", " + max(others[0].Name, others[1].Name)
	unconfirmed := tell(t, leader, "message", "send", queue, "unconfirmed")
	t.Logf("a send to the last leader ended after %s", unconfirmed.took)
	if unconfirmed.code != 3 || !strings.Contains(unconfirmed.errs, "NO QUORUM: ") || !strings.Contains(unconfirmed.errs, cause) || unconfirmed.took > sendEndsMax {
		t.Errorf("a send to the last leader: exit code %d after %s: %s; want 3 within %s, NO QUORUM and %q", unconfirmed.code, unconfirmed.took, unconfirmed.errs, sendEndsMax, cause)
	}
	status := tell(t, leader, "cluster", "status")
	first, _, _ := strings.Cut(status.out, "\n")
	want := fmt.Sprintf("NO QUORUM: %d of %[1]d partitions; %s", partitionCount(t, leader), cause)
	if status.code != 0 || first != want || status.took > statusEndMax {
		t.Errorf("status: exit code %d after %s, first line %q; want 0 within %s and %q", status.code, status.took, first, statusEndMax, want)
	}
	if check := tell(t, leader, "cluster", "status", "--check"); check.code != 1 || !strings.Contains(check.errs, want) {
		t.Errorf("--check: exit code %d: %s; want 1 and %q", check.code, check.errs, want)
	}
	// Now nobody leads. The outcome stays unknown: the message may have been forwarded to a leader that died.
	again := tell(t, leader, "message", "send", queue, "later", "--timeout", "2s")
	if again.code == 0 || !strings.Contains(again.errs, want) || again.took > sendEndsMax {
		t.Errorf("a send without any leader: exit code %d after %s: %s; want a failure within %s and %q", again.code, again.took, again.errs, sendEndsMax, want)
	}

	others[0].Start()
	harness.Eventually(t, confirmsWithin, "the check succeeds", func(context.Context) error {
		if got := tell(t, leader, "cluster", "status", "--check"); got.code != 0 {
			return errors.New(got.errs)
		}
		return nil
	})
	if got := tell(t, leader, "message", "send", queue, "after"); got.code != 0 {
		t.Errorf("with a quorum again: exit code %d: %s", got.code, got.errs)
	}
	// A message whose outcome was unknown is there once or not at all.
	peeked := tell(t, leader, "message", "peek", queue, "--count", "0", "-o", "json")
	for body, most := range map[string]int{"before": 1, "unconfirmed": 1, "later": 1, "after": 1} {
		n := strings.Count(peeked.out, `"body":"`+body+`"`)
		if n > most || n == 0 && (body == "before" || body == "after") {
			t.Errorf("%s is there %d times: %s", body, n, peeked.out)
		}
	}
}

// partitionCount returns the number of partitions, with the catalog.
func partitionCount(t *testing.T, m *harness.Member) int {
	t.Helper()
	s, err := m.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Partitions)
}
