package fault

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/upgrade"
)

const (
	// upgradeVariable names a commit from which TestRollingUpgrade upgrades to the working tree: a tag, a branch, a hash.
	// Without it, the test upgrades from the working tree to the next release, see package upgrade.
	upgradeVariable = "PEEKLOCK_UPGRADE_FROM"

	upgradeSenders   = 4
	upgradeReceivers = 2   // at each of two members
	upgradePhase     = 200 // sends confirmed before and after each restart

	// upgradeLevelWait is longer than the leader of the catalog waits before it raises the level.
	upgradeLevelWait = 15 * time.Second
)

// TestRollingUpgrade replaces the binary of the working tree by that of the next release, or the binary of an earlier
// commit by that of the working tree, one member at a time, under load and with messages in every kind of entity. While one member is
// still old, the others are downgraded; then all are upgraded. Each binary reads what the
// other writes, and clients at the other members see no error. When every member has the
// new binary, the format level rises if the new binary knows a higher one and no operator holds it; from then on the
// old binary refuses to start. Binaries with the same level can be exchanged in both directions.
func TestRollingUpgrade(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	oldBinary, newBinary := upgradeBinaries(t)
	c := harness.Start(t, harness.Options{Binary: oldBinary})
	u := &rollingUpgrade{Cluster: c, t: t, oldBinary: oldBinary, newBinary: newBinary}
	u.before = u.stableLevel() // a new cluster begins at the lowest level and rises soon
	isNext := os.Getenv(upgradeVariable) == ""
	if isNext { // the earlier commit may not know how to hold the level
		u.holdLevel(u.before)
	}
	c.CreateQueue(t, queue, harness.Settings{})
	u.each, u.whole = newUpgradeEntities(t, c, "each"), newUpgradeEntities(t, c, "whole")
	u.whole.kinds = u.whole.kinds[1:] // locks are held by a client at one member, which is restarted too
	first, second, third := c.Members[0], c.Members[1], c.Members[2]
	u.whole.store(c.Members[0], 0)

	u.restart(first, u.newBinary)
	u.restart(second, u.newBinary)
	u.checkLevelStays(u.before, third) // one member is old: nothing is written that it cannot read
	u.restart(second, u.oldBinary)
	u.restart(first, u.oldBinary)

	u.restart(third, u.newBinary)
	u.restart(first, u.newBinary)
	u.restart(second, u.newBinary)
	if isNext {
		if level := u.stableLevel(); level != u.before {
			t.Errorf("the level is %d while it is held, want %d", level, u.before)
		}
		u.holdLevel(0)
	}
	switch after := u.stableLevel(); {
	case after > u.before:
		t.Logf("the level rose from %d to %d", u.before, after)
		u.checkRefused(third)
	case isNext:
		t.Errorf("the level is %d after the upgrade to the next release, want %d", after, upgrade.Level)
	default:
		t.Logf("both binaries know level %d: the old one starts again", after)
		u.restart(third, u.oldBinary)
	}
	u.restart(third, u.newBinary)
	u.whole.check(second, 0)
}

// rollingUpgrade is a cluster whose members run one of two binaries.
type rollingUpgrade struct {
	*harness.Cluster
	t                    *testing.T
	oldBinary, newBinary string // paths of the binaries
	before               uint32 // level of the cluster of old members
	each, whole          *upgradeEntities
	turn                 int
}

// restart replaces the binary of a member. Load continues at the two others, and messages that were stored
// in every kind of entity before are found afterwards.
func (u *rollingUpgrade) restart(m *harness.Member, binary string) {
	u.t.Helper()
	u.turn++
	others := u.Others(m)
	l := newLoad(u.t, queue)
	for _, at := range others {
		l.send(upgradeSenders/len(others), at)
		l.receive(upgradeReceivers, at)
	}
	u.each.store(others[0], u.turn)
	l.waitConfirmed(upgradePhase, "load before the restart")
	l.takeLongestPause()
	m.Stop()
	m.SetBinary(binary)
	restart(m)
	l.waitConfirmed(upgradePhase, "load with the member back")
	u.t.Logf("restart %d, %s: sends paused for %v", u.turn, m.Name, l.takeLongestPause())
	waitCaughtUp(u.t, m, others[0])
	u.each.check(others[1], u.turn)
	l.finish(u.Cluster)
	if n := l.errors.Load(); n != 0 {
		u.t.Errorf("clients at running members saw %d errors, only a pause is allowed", n)
	}
}

// holdLevel sets the level above which the cluster does not rise, 0 for none.
func (u *rollingUpgrade) holdLevel(most uint32) {
	u.t.Helper()
	harness.Eventually(u.t, confirmsWithin, "hold of the format level", func(ctx context.Context) error {
		return u.Members[0].Call(ctx, "PUT", "/v1/format-level", map[string]uint32{"max": most}, nil)
	})
}

// checkLevelStays drains the member that is still old, so that a new one leads the catalog, and waits
// longer than that one needs to raise the level, which it must not do.
func (u *rollingUpgrade) checkLevelStays(level uint32, old *harness.Member) {
	u.t.Helper()
	other := u.Others(old)[0]
	harness.Eventually(u.t, drainWithin, "drain", func(ctx context.Context) error {
		return other.Call(ctx, "POST", "/v1/members/"+old.Name+"/drain", nil, nil)
	})
	<-time.After(upgradeLevelWait)
	u.waitLevel(level)
	harness.Eventually(u.t, drainWithin, "undrain", func(ctx context.Context) error {
		return other.Call(ctx, "POST", "/v1/members/"+old.Name+"/undrain", nil, nil)
	})
}

// checkRefused starts the old binary on the folder of a member whose cluster has risen to a higher
// level. The process must end and say why (docs/upgrade.md).
func (u *rollingUpgrade) checkRefused(m *harness.Member) {
	u.t.Helper()
	m.Stop()
	m.SetBinary(u.oldBinary)
	size := m.LogSize()
	m.Start()
	if code := m.WaitEnded(); code == 0 {
		u.t.Errorf("%s ended with exit status 0", m.Name)
	}
	const want = "this binary is older than the cluster"
	if said := m.LogSince(size); !strings.Contains(said, want) {
		u.t.Errorf("the old binary does not say %q:\n%s", want, said)
	}
	m.SetBinary(u.newBinary)
	restart(m)
}

// level is the level of the cluster that a member has recorded in its data folder; 0: none yet.
func (u *rollingUpgrade) level(m *harness.Member) (uint32, error) {
	content, err := os.ReadFile(filepath.Join(m.Dir, "member.json"))
	if err != nil {
		return 0, err
	}
	var member struct {
		Level uint32 `json:"level"`
	}
	return member.Level, json.Unmarshal(content, &member)
}

// stableLevel waits until no member has seen the level rise for longer than the leader of the catalog waits before it
// raises it.
func (u *rollingUpgrade) stableLevel() (level uint32) {
	u.t.Helper()
	for {
		highest := uint32(0)
		for _, m := range u.Members {
			has, err := u.level(m)
			if err != nil {
				u.t.Fatal(err)
			}
			highest = max(highest, has)
		}
		if highest > 0 && highest == level {
			u.waitLevel(level)
			return level
		}
		level = highest
		<-time.After(upgradeLevelWait)
	}
}

// waitLevel waits until every member has recorded that the cluster is at a level.
func (u *rollingUpgrade) waitLevel(want uint32) {
	u.t.Helper()
	for _, m := range u.Members {
		harness.Eventually(u.t, confirmsWithin, fmt.Sprintf("%s at level %d", m.Name, want), func(context.Context) error {
			level, err := u.level(m)
			if err == nil && level != want {
				err = fmt.Errorf("it is at %d", level)
			}
			return err
		})
	}
}

// upgradeBinaries builds the binaries that are upgraded from and to.
func upgradeBinaries(t *testing.T) (from, to string) {
	t.Helper()
	if commit := os.Getenv(upgradeVariable); commit != "" {
		return binaryOf(t, commit), harness.Binary(t)
	}
	overlay := kit.Must(upgrade.Write(t.TempDir()))(t)
	to = filepath.Join(t.TempDir(), "peeklock-next")
	if _, err := runIn(t, "", "go", "build", "-overlay", overlay, "-o", to, "github.com/peeklock/peeklock/cmd/peeklock"); err != nil {
		t.Fatalf("build the next release: %v", err)
	}
	return harness.Binary(t), to
}

// runIn runs a command in a folder and returns its output.
func runIn(t *testing.T, dir, name string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said.Bytes())
	}
	return out, err
}

// binaryOf builds the binary of a commit. It exports the commit with git archive, which leaves the
// repository unchanged.
func binaryOf(t *testing.T, commit string) string {
	t.Helper()
	const missing = "the commit %q to upgrade from cannot be read here: get the history with `git fetch --unshallow`, or name another commit in %s: %v"
	hash, err := runIn(t, "", "git", "rev-parse", "--verify", "--end-of-options", commit+"^{commit}")
	if err != nil {
		t.Fatalf(missing, commit, upgradeVariable, err)
	}
	top := kit.Must(runIn(t, "", "git", "rev-parse", "--show-toplevel"))(t)
	archive, err := runIn(t, strings.TrimSpace(string(top)), "git", "archive", "--format=tar", strings.TrimSpace(string(hash)))
	if err != nil {
		t.Fatalf(missing, commit, upgradeVariable, err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if err := unpack(tree, archive); err != nil {
		t.Fatalf("unpack commit %s: %v", commit, err)
	}
	binary := filepath.Join(t.TempDir(), "peeklock-old")
	if _, err := runIn(t, tree, "go", "build", "-o", binary, "./cmd/peeklock"); err != nil {
		t.Fatalf("build the commit %q: %v", commit, err)
	}
	t.Logf("upgraded from %s, %.12s", commit, hash)
	return binary
}

// unpack writes the files of a tar archive below a new folder.
func unpack(dir string, archive []byte) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for from := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(h.Name, 0o700)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(from); err == nil {
				err = root.WriteFile(h.Name, content, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
}
