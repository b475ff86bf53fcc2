package partition

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// damages are what is done to a file. other is a sound file of the same kind.
func damages() map[string]func(t *testing.T, path, other string) error {
	return map[string]func(t *testing.T, path, other string) error{
		"flip a bit": func(t *testing.T, path, _ string) error {
			kit.FlipBit(t, path, usedBytes(t, path)/2)
			return nil
		},
		"truncate": func(t *testing.T, path, _ string) error { return os.Truncate(path, usedBytes(t, path)/2) },
		"swap": func(_ *testing.T, path, other string) error {
			content, err := os.ReadFile(other)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(path+".swap", content, 0o600), os.Rename(path+".swap", path))
		},
		"swap pages": func(_ *testing.T, path, _ string) error {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, swapPages(content), 0o600)
		},
		"delete": func(_ *testing.T, path, _ string) error { return os.Remove(path) },
	}
}

// swapPages returns a file whose second and third quarter are exchanged.
func swapPages(content []byte) []byte {
	page := len(content) / 4
	return slices.Concat(content[:page], content[2*page:3*page], content[page:2*page], content[3*page:])
}

// usedBytes returns the size of a file without the zeros at its end: the segments of a journal have their full size at once.
func usedBytes(t *testing.T, path string) int64 {
	t.Helper()
	content := kit.Must(os.ReadFile(path))(t)
	return int64(len(bytes.TrimRight(content, "\x00")))
}

// damagedFiles are the kinds of files of a member in package partition, as patterns below its folder.
func damagedFiles() map[string]string {
	files := map[string]string{
		"name of the replica": "groups/1/replica",
		"manifest":            "groups/1/snap/*/manifest",
		"image":               "groups/1/snap/*/image",
		"references":          "groups/1/snap/*/refs",
		"segment":             "groups/1/seg/*.seg",
		"log":                 "raftlog/0.db",
	}
	if logKind() == raftlog.Journal {
		files["journal"], files["copy of the values"] = "raftlog/"+raftlog.JournalFolder+"/*", "raftlog/0.db.copy"
	}
	return files
}

// A file of one replica of three is damaged, while its member is down or runs. The replica stops or refuses to open,
// or it was not harmed: it never has another state than the others. All that was confirmed is there, the two other
// replicas go on, and a new replica takes the place of a damaged one.
func TestDamageOfAnyFileHarmsNoOtherReplica(t *testing.T) {
	t.Parallel()
	for kind, pattern := range damagedFiles() {
		for how, damage := range damages() {
			for _, running := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/running %v", kind, how, running)
				if kind == "log" && (running || logKind() == raftlog.Bolt) && (how == "flip a bit" || how == "truncate" || how == "swap pages") {
					continue // bbolt maps the file: such damage ends the process, or nobody sees it
				}
				t.Run(name, func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						if how != "flip a bit" {
							kit.Long(t)
						}
						damageOne(t, pattern, running, damage)
					})
				})
			}
		}
	}
}

func damageOne(t *testing.T, pattern string, running bool, damage func(t *testing.T, path, other string) error) {
	t.Helper()
	ms, a := threeReplicas(t, func(c *Config) {
		c.Sizes.Segment = 4 << 10
	})
	victim, rest := ms[2], ms[:2]
	sent := make(map[string]bool)
	fill := func(ms []*member, n int) {
		for range n {
			text := fmt.Sprintf("%d %0*d", a.serial, len(sent)%100, 0)
			mustEventually(t, ms, a.next(), send(1, []byte(text)))
			sent[text] = true
		}
	}
	victim.stop() // so that it is sent a snapshot, with references of its own
	// A request that waits for the victim all the time may carry some of the entries that are dropped below.
	fill(rest, trailingEntriesUnknown+50+entriesPerRequestMax)
	for _, m := range rest {
		waitCaughtUp(t, rest, m)
		kit.OK(t, m.group(1).Snapshot(t.Context()))
	}
	victim.start(1)
	waitCaughtUp(t, ms, victim)
	fill(ms, 20)
	waitCaughtUp(t, ms, victim)

	paths, err := filepath.Glob(filepath.Join(victim.dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	others := kit.Must(filepath.Glob(filepath.Join(rest[0].dir, pattern)))(t)
	others = append(others, paths[len(paths)-1]) // the others have no file of references
	if !running {
		victim.stop()
	}
	kit.OK(t, damage(t, paths[0], others[0]))
	if running { // it goes on, reads everything, and writes a snapshot
		fill(ms, 20)
		stateOf(victim)
		_ = victim.group(1).Snapshot(t.Context())
		victim.stop()
	}
	fill(rest, 20)
	if !sound(t, ms, victim) {
		victim.stop()
		ms = append(slices.Clone(rest), replace(t, ms, victim))
	}
	left := make(map[string]bool)
	for _, text := range image(t, currentLeader(t, ms)) {
		left[text] = true
	}
	if !cmp.Equal(left, sent) {
		t.Errorf("%d messages where %d were confirmed", len(left), len(sent))
	}
}

// stateOf returns the state of a replica with all bodies, and false when it is damaged.
func stateOf(m *member) (state map[fsm.Owner]string, ok bool) {
	g := m.group(1)
	defer func() {
		if r := recover(); r != nil {
			if _, damaged := r.(bodystore.Failure); !damaged {
				panic(r)
			}
		}
	}()
	state = make(map[fsm.Owner]string)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.machine.Refs(func(o fsm.Owner, r fsm.Ref) fsm.Ref {
		state[o] = string(g.bodies.Read(r))
		return r
	})
	return state, true
}

// sound starts a replica and reports whether it opens, catches up and can read all that it refers to, which is then
// what the leader has.
func sound(t *testing.T, ms []*member, m *member) bool {
	t.Helper()
	if err := m.tryStart(1); err != nil {
		t.Logf("it refuses to open: %v", err)
		return false
	}
	kit.Eventually(t, "it catches up or stops", func() bool {
		g := anyLeader(ms)
		return m.group(1).Status().Halted != nil || g != nil && m.group(1).Status().Applied >= g.Status().Applied
	})
	if err := m.group(1).Status().Halted; err != nil {
		t.Logf("it stops: %v", err)
		return false
	}
	state, ok := stateOf(m)
	if !ok {
		t.Log("it refuses to read a body")
		return false
	}
	if diff := cmp.Diff(image(t, currentLeader(t, ms)), state); diff != "" {
		t.Errorf("it runs with another state:\n%s", diff)
	}
	return true
}

// replace replaces a damaged replica by one on a new member, m3.
func replace(t *testing.T, ms []*member, damaged *member) *member {
	t.Helper()
	rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == damaged })
	added := startEmptyMember(t, ms, "m3")
	for _, change := range []func(g *Group) error{
		func(g *Group) error { return g.RemoveReplica(t.Context(), damaged.config(1).Replica) },
		func(g *Group) error { return g.AddNonvoter(t.Context(), "m3.1", "m3") },
		func(*Group) error { waitCaughtUp(t, rest, added); return nil },
		func(g *Group) error { return g.AddVoter(t.Context(), "m3.1", "m3") },
	} {
		kit.OK(t, atLeader(t, rest, func(_ *member, g *Group) error { return change(g) }))
	}
	sameEverywhere(t, append(slices.Clone(rest), added))
	return added
}

// bbolt does not see a bit that flips in an entry of its file. The replica that replays it has another digest than
// the others, by which package compare finds it.
func TestDamagedLogEntryChangesTheDigest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 3, nil)
		for _, m := range ms {
			m.kind = raftlog.Bolt // for a journal: TestDamagedEntryStopsItsGroup
		}
		a := startThree(t, ms)
		text := []byte("a text that only one message has")
		mustEventually(t, ms, a.next(), send(1, text))
		victim := ms[2]
		for _, m := range ms { // so that none of them gets the entry from the victim later
			waitCaughtUp(t, ms, m)
		}
		victim.stop()
		path := filepath.Join(victim.dir, "raftlog", "0.db")
		content := kit.Must(os.ReadFile(path))(t)
		copies := 0 // in pages that are no longer used too
		for from := 0; ; copies++ {
			at := bytes.Index(content[from:], text)
			if at < 0 {
				break
			}
			kit.FlipBit(t, path, int64(from+at))
			from += at + len(text)
		}
		if copies == 0 {
			t.Fatal("the log does not hold the message")
		}
		victim.start(1)
		mustEventually(t, ms, a.next(), send(1, body(2)))
		waitCaughtUp(t, ms, victim)
		digest := func(m *member) uint64 {
			g := m.group(1)
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.rolling.Current()
		}
		waitCaughtUp(t, ms, ms[0])
		waitCaughtUp(t, ms, ms[1])
		if digest(ms[0]) != digest(ms[1]) || digest(ms[0]) == digest(victim) {
			t.Errorf("digests %x and %x, of the damaged replica %x", digest(ms[0]), digest(ms[1]), digest(victim))
		}
	})
}
