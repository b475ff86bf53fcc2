package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// startEmptyMember starts one more member, which forms no groups.
func startEmptyMember(t *testing.T, ms []*member, id fsm.MemberID) *member {
	t.Helper()
	m := &member{t: t, net: ms[0].net, id: id, dir: kit.MemoryDir(t), tune: ms[0].tune}
	m.net.mu.Lock()
	m.net.peers[id] = m
	m.net.mu.Unlock()
	m.start(1)
	t.Cleanup(m.stop)
	return m
}

func replicaDir(m *member) string { return filepath.Join(m.dir, "groups", "1") }

// entriesIn returns the last index of group 1 in a log file that is not open.
func entriesIn(t *testing.T, path string) uint64 {
	t.Helper()
	l := kit.Must(raftlog.Open(raftlog.Config{Path: path, Kind: logKind(), Logger: testLogger(t)}))(t)
	g := kit.Must(l.Group(1))(t)
	last, err := g.LastIndex()
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return last
}

// A replica moves: the new one is added empty, catches up, becomes a voter, and the old one is removed. Every
// step can be repeated.
func TestMembershipChangesCanBeRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		fourth := startEmptyMember(t, ms, "m3")
		mustEventually(t, ms, a.next(), send(1, body(1)))
		change := func(f func(g *Group) error) {
			t.Helper()
			for range 2 { // repeated it changes nothing
				kit.OK(t, atLeader(t, ms, func(_ *member, g *Group) error { return f(g) }))
			}
		}
		if err := atLeader(t, ms, func(_ *member, g *Group) error { return g.AddVoter(t.Context(), "m3.1", "m3") }); !errors.Is(err, ErrNotNonvoter) {
			t.Errorf("an unknown replica became a voter: %v", err)
		}
		change(func(g *Group) error { return g.AddNonvoter(t.Context(), "m3.1", "m3") })
		waitCaughtUp(t, ms, fourth)
		ms = append(slices.Clone(ms), fourth)
		change(func(g *Group) error { return g.AddVoter(t.Context(), "m3.1", "m3") })
		leading, _ := leader(t, ms, 1)
		victim := ms[slices.IndexFunc(ms[:3], func(m *member) bool { return m != leading })]
		change(func(g *Group) error { return g.RemoveReplica(t.Context(), victim.config(1).Replica) })
		ms = slices.DeleteFunc(ms, func(m *member) bool { return m == victim })
		lm, g := leader(t, ms, 1)
		if n := len(g.Status().Voters); n != 3 {
			t.Errorf("%d voters", n)
		}
		before := g.Status().Configuration
		change(func(g *Group) error { return g.AddNonvoter(t.Context(), "m3.1", "m3") })
		if s := g.Status(); s.IsLeader && s.Configuration != before {
			t.Error("what is so already was changed")
		}
		// Repeated changes leave nothing in the log that a read would wait for.
		reading, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := atLeader(t, ms, func(_ *member, g *Group) error { return g.Read(reading, func(Machine) {}) }); err != nil {
			t.Errorf("read: %v", err)
		}
		mustEventually(t, ms, a.next(), send(1, body(2)))
		// prevIndex: a change that starts from an older configuration is refused.
		f := g.instance.Load().raft.AddNonvoter("m9.1", "m9", 1, time.Second)
		if f.Error() == nil {
			t.Error("a change from an old configuration went through")
		}
		for _, m := range ms {
			if m != lm && !m.group(1).Status().IsLeader {
				err := m.group(1).AddVoter(t.Context(), "x", "x")
				if !errors.Is(err, ErrNotLeader) && !m.group(1).Status().IsLeader {
					t.Errorf("a follower adds: %v", err)
				}
				break
			}
		}
		sameEverywhere(t, ms)
	})
}

// A removed leader steps down, its raft instance stops, and the others continue. Destroy leaves nothing
// behind, and another replica can take its place.
func TestRemovedLeaderStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		mustEventually(t, ms, a.next(), send(1, body(1)))
		var lm *member
		kit.OK(t, atLeader(t, ms, func(m *member, g *Group) error {
			lm = m
			return g.RemoveReplica(t.Context(), m.config(1).Replica)
		}))
		g := lm.group(1)
		kit.Eventually(t, "it knows", func() bool { return g.Status().Removed })
		kit.Eventually(t, "its instance stops", func() bool { // its state may say follower: raft writes that last
			return g.instance.Load().streams.IsClosed()
		})
		if s := g.Status(); s.IsLeader || s.Halted != nil {
			t.Errorf("%+v", s)
		}
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
		mustEventually(t, rest, a.next(), send(1, body(2)))

		path := filepath.Join(lm.dir, "raftlog", "0.db")
		kit.OK(t, g.Destroy(t.Context()))
		if _, err := os.Stat(replicaDir(lm)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its folder: %v", err)
		}
		lm.stop()
		if n := entriesIn(t, path); n != 0 {
			t.Errorf("%d entries of it are left in the log", n)
		}

		lm.voters, lm.tune = nil, func(c *Config) { c.Replica = string(c.Member) + ".2" }
		lm.start(1)
		kit.OK(t, atLeader(t, rest, func(_ *member, g *Group) error {
			return g.AddNonvoter(t.Context(), string(lm.id)+".2", lm.id)
		}))
		waitCaughtUp(t, rest, lm)
		sameEverywhere(t, []*member{rest[0], rest[1], lm})
		if lm.group(1).Status().Removed {
			t.Error("a replica that reads of groups before its time takes itself for removed")
		}
	})
}

// The next open completes a Destroy that was interrupted by the end of the process, and does not touch a
// replica that was added meanwhile.
func TestInterruptedDropIsFinishedAtOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m, g, a := openSingle(t, nil)
		for i := range 20 {
			must(t, g, a.next(), send(1, body(i)))
		}
		kit.OK(t, markDropped(m.log.FS(), replicaDir(m)))
		m.stop()
		if err := m.tryStart(1); !errors.Is(err, ErrDropped) {
			t.Fatalf("opened: %v", err)
		}
		if _, err := os.Stat(replicaDir(m)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its folder: %v", err)
		}
		if n := entriesIn(t, filepath.Join(m.dir, "raftlog", "0.db")); n != 0 {
			t.Errorf("%d entries are left", n)
		}
		// Another replica is added; the old folder reappears, as after a crash between the removals of the log
		// and of the folder.
		m.tune = func(c *Config) {
			c.Replica, c.Dir, c.Bootstrap = "m0.2", filepath.Join(m.dir, "groups", "1.2"), []Voter{{"m0.2", "m0"}}
		}
		m.start(1)
		_, g = leader(t, []*member{m}, 1)
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		must(t, g, a.next(), send(1, body(1)))
		kit.OK(t, os.MkdirAll(replicaDir(m), 0o700))
		kit.OK(t, Drop(m.log, 1, "m0.1", replicaDir(m)))
		m.stop()
		m.start(1)
		_, g = leader(t, []*member{m}, 1)
		if n := len(image(t, g)); n != 1 {
			t.Errorf("%d messages in the new replica", n)
		}
	})
}

// Log and folder belong to one replica: neither is used for another one, and a replica whose log was lost
// does not vote as if it never had.
func TestLogAndFolderBelongTogether(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m, g, a := openSingle(t, nil)
		must(t, g, a.next(), send(1, body(1)))
		m.stop()
		was := m.tune
		m.tune = func(c *Config) { c.Replica, c.Dir = "m0.2", filepath.Join(m.dir, "groups", "1.2") }
		if err := m.tryStart(1); !errors.Is(err, ErrForeignLog) {
			t.Errorf("another replica opens the log: %v", err)
		}
		m.tune = func(c *Config) { c.Replica = "m0.2" }
		if err := m.tryStart(1); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("another replica opens the folder: %v", err)
		}
		m.tune = was
		path := filepath.Join(m.dir, "raftlog")
		kit.OK(t, os.Rename(path, path+".aside"))
		if err := m.tryStart(1); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("without its log: %v", err)
		}
		kit.OK(t, errors.Join(os.RemoveAll(path), os.Rename(path+".aside", path)))
		m.start(1)
		_, g = leader(t, []*member{m}, 1)
		if n := len(image(t, g)); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// Replicas are added and removed one after the other under load; nothing is lost (docs/requirements.md#c9).
func TestMovesUnderLoadLoseNothing(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		ms, _ := threeReplicas(t, func(c *Config) { c.Sizes = Sizes{Segment: 16 << 10, Snapshot: 64 << 10, Trailing: 0} })
		all := append(slices.Clone(ms), startEmptyMember(t, ms, "m3"), startEmptyMember(t, ms, "m4"))
		stop := make(chan struct{})
		sent := make(chan int)
		go func() {
			a := &asker{origin: 100, receiver: 1}
			for i := 0; ; i++ {
				select {
				case <-stop:
					sent <- i
					return
				default:
				}
				h := a.next()
				c := fsm.AppendCommand(nil, h, send(1, bytes.Repeat(body(i), 30)))
				if r := router(t, all, h, func(g *Group, done func(Answer)) { g.Submit(c, done) }); r.Code != fsm.OK {
					t.Error(r.Code)
				}
			}
		}()
		step := func(what string, f func(g *Group) error) {
			t.Helper()
			if err := atLeader(t, all, func(_ *member, g *Group) error { return f(g) }); err != nil {
				t.Fatal(what, err)
			}
		}
		for i, in := range []*member{all[3], all[4]} {
			out := all[i]
			name := fmt.Sprintf("%s.1", in.id)
			step("add", func(g *Group) error { return g.AddNonvoter(t.Context(), name, in.id) })
			waitCaughtUp(t, all, in)
			step("promote", func(g *Group) error { return g.AddVoter(t.Context(), name, in.id) })
			step("remove", func(g *Group) error {
				if g.cfg.Member == out.id { // it transfers leadership first; if it cannot, it is removed all the same
					if err := g.Transfer(t.Context(), in.id); err == nil {
						return ErrNotLeader
					}
				}
				return g.RemoveReplica(t.Context(), string(out.id)+".1")
			})
			kit.OK(t, out.group(1).Destroy(t.Context()))
			out.stop()
		}
		close(stop)
		n := <-sent
		rest := all[2:]
		sameEverywhere(t, rest)
		_, g := leader(t, rest, 1)
		if got := len(image(t, g)); got != n {
			t.Errorf("%d messages of %d", got, n)
		}
	})
}

// Of the two remaining voters one has not learnt that the other is a voter: it must vote for it all the same,
// or no leader is ever elected.
func TestUnknownVoterCanBeElected(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		fourth := startEmptyMember(t, ms, "m3")
		mustEventually(t, ms, a.next(), send(1, body(1)))
		leading, _ := leader(t, ms, 1)
		others := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == leading })
		lagging, gone := others[0], others[1]
		leading.net.isolate(lagging.id, true)
		reached := []*member{leading, gone, fourth}
		change := func(f func(g *Group) error) {
			t.Helper()
			kit.OK(t, atLeader(t, reached, func(_ *member, g *Group) error { return f(g) }))
		}
		change(func(g *Group) error { return g.AddNonvoter(t.Context(), "m3.1", "m3") })
		waitCaughtUp(t, reached, fourth)
		change(func(g *Group) error { return g.AddVoter(t.Context(), "m3.1", "m3") })
		mustEventually(t, reached, a.next(), send(1, body(2)))
		change(func(g *Group) error { return g.RemoveReplica(t.Context(), gone.config(1).Replica) })
		mustEventually(t, []*member{leading, fourth}, a.next(), send(1, body(3)))
		gone.stop()
		leading.stop()
		leading.net.isolate(lagging.id, false)
		left := []*member{lagging, fourth}
		mustEventually(t, left, a.next(), send(1, body(4)))
		sameEverywhere(t, left)
	})
}

// A replica that gets a snapshot from before it was added, although its log goes further, was not removed.
func TestFormerConfigurationRemovesNoReplica(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		g.mu.Lock()
		at := g.configIndex.Load()
		g.applyConfiguration(at+10, g.cfg.firstConfiguration().Servers)
		g.applyConfiguration(at+9, nil)
		g.mu.Unlock()
		must(t, g, a.next(), send(1, body(1)))
		if s := g.Status(); s.Removed || s.Configuration != at+10 || !s.ConfigurationCommitted {
			t.Errorf("got removed %v, configuration %d, committed %v, want false, %d, true", s.Removed, s.Configuration, s.ConfigurationCommitted, at+10)
		}
		g.mu.Lock()
		g.applyConfiguration(at+11, nil)
		g.mu.Unlock()
		kit.Eventually(t, "a later one removes it", func() bool { return g.Status().Removed })
		if g.Status().ConfigurationCommitted {
			t.Error("raft's configuration counts as committed, and another one was applied")
		}
	})
}
