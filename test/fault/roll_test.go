package fault

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
)

// drainWithin is for a member to lose its leaderships, on any machine.
const drainWithin = 3 * time.Minute

// The members are drained, stopped and started again, one after the other, as in an upgrade.
// Clients at the others see no error, and settle afterwards what they had locked before.
func TestRollingRestart(t *testing.T) {
	c, _, _ := start(t, harness.Settings{})
	roll(t, c, func(*harness.Member) {})
}

// The same from the release before this one to this one. What a member of either writes the
// other reads, in whatever order they are restarted.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute with three processes: left out by -short")
	}
	tag, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0").Output()
	if err != nil {
		t.Skip("there is no release before this one: no tag leads here")
	}
	before := binaryOf(t, strings.TrimSpace(string(tag)))
	c := harness.Start(t, harness.Options{Binary: before})
	c.CreateQueue(t, queue, harness.Settings{})
	roll(t, c, func(m *harness.Member) { m.SetBinary(harness.Binary(t)) })
}

// binaryOf builds the members of a release.
func binaryOf(t *testing.T, tag string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	run := func(dir, name string, args ...string) {
		cmd := exec.Command(name, args...) // also in the cleanup, when the test's context has ended
		cmd.Dir = dir
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, said)
		}
	}
	run("", "git", "worktree", "add", "--detach", tree, tag)
	t.Cleanup(func() { run("", "git", "worktree", "remove", "--force", tree) })
	binary := filepath.Join(t.TempDir(), "peeklock-"+tag)
	run(tree, "go", "build", "-o", binary, "./cmd/peeklock")
	return binary
}

// roll restarts each member, with clients at the two others.
func roll(t *testing.T, c *harness.Cluster, stopped func(*harness.Member)) {
	t.Helper()
	for _, m := range c.Members {
		var rides []*ride
		for _, at := range c.Others(m) {
			rides = append(rides, newRide(t, c, at, "roll-"+m.Name+"-"+at.Name))
		}
		each := func(do func(*ride)) {
			for _, r := range rides {
				do(r)
			}
		}
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load before") })
		each((*ride).hold)
		each(func(r *ride) { r.pause() })
		other := rides[0].at
		// As the command line does it: the answer may be that it goes on.
		harness.Eventually(t, drainWithin, "drain", func(ctx context.Context) error {
			return other.Call(ctx, "POST", "/v1/members/"+m.Name+"/drain", nil, nil)
		})
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load with the member drained") })
		m.Stop()
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load without the member") })
		stopped(m)
		back(m)
		harness.Eventually(t, drainWithin, "undrain", func(ctx context.Context) error {
			return other.Call(ctx, "POST", "/v1/members/"+m.Name+"/undrain", nil, nil)
		})
		each(func(r *ride) { r.waitConfirmed(ridePhase, "load with the member back") })
		each((*ride).goesOn)
		each(func(r *ride) {
			t.Logf("%s restarted: sends at %s paused for %v", m.Name, r.at.Name, r.pause())
			caughtUpOn(t, r.queue, m, r.at)
			r.ends()
		})
		c.WaitLed(t)
	}
}
