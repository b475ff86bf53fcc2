package partition

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// countingLog counts log records by level.
type countingLog struct {
	slog.Handler

	errors, infos atomic.Int32
}

func (l *countingLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *countingLog) Handle(_ context.Context, r slog.Record) error { //nolint:gocritic // the interface has it so
	if r.Level == slog.LevelError {
		l.errors.Add(1)
	}
	if r.Level == slog.LevelInfo {
		l.infos.Add(1)
	}
	return nil
}

// codeOf submits a command and returns its code.
func codeOf(t *testing.T, g *Group, h fsm.Header, c fsm.Command) fsm.Code {
	t.Helper()
	return ask(t, g, h, c).Result.Code
}

// Below the reserve a leader refuses commands that make data grow, and accepts all others. It recovers by
// itself when there is clearly more space. It logs each change once.
func TestReadOnlyBelowTheReserve(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(50 << 30)
		logged := &countingLog{}
		ms := newMembers(t, 1, func(c *Config) {
			c.MeasureDisk = func(string) (uint64, uint64, error) { return free.Load(), 100 << 30, nil }
			c.Sizes.Ballast = 0
		})
		ms[0].logger = slog.New(logged)
		m, g, a := startSingle(t, ms)
		if s := m.log.DiskSpace(); s.Reserve != 5<<30 || s.ReadOnly || s.Total != 100<<30 {
			t.Fatalf("%+v", s)
		}
		must(t, g, a.next(), send(1, body(1)))
		ballast := filepath.Join(m.dir, "raftlog", disk.BallastFile)
		if info, err := os.Stat(ballast); err != nil || info.Size() != disk.BallastBytesDefault {
			t.Errorf("ballast: %v", err)
		}
		free.Store(5<<30 - 1)
		kit.Eventually(t, "it is read-only", func() bool { return g.Status().ReadOnly })
		for _, c := range []fsm.Command{
			send(1, body(2)),
			fsm.Transact{Sends: []fsm.SendMessages{send(1, body(2))}},
			fsm.TransferMessages{Entity: 1},
			fsm.CreateEntity{},
			fsm.CreateNamespace{},
			fsm.PutRule{},
			fsm.UpdateEntity{},
			fsm.UpdateNamespace{},
			fsm.SetAccess{Namespace: 1, Rules: []fsm.AccessRule{{Name: "a", Primary: "p", Rights: fsm.Send}}},
			fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: fsm.LockID{Sequence: 1, Epoch: 1}, Verb: fsm.Abandon, Properties: []byte{1}}}},
		} {
			if x := ask(t, g, a.next(), c); x.Outcome != Refused || x.Result.Code != fsm.ServerBusy {
				t.Errorf("%T: %+v", c, x)
			}
		}
		r := &asker{origin: 7, receiver: 1}
		got := lock(t, g, r.next(), lockOf(1, 1), time.Minute)
		if len(got.Result.Deliveries) != 1 {
			t.Fatalf("%+v", got)
		}
		must(t, g, a.next(), fsm.RenewLocks{Address: fsm.Address{Entity: 1}, Locks: []fsm.LockID{got.Result.Deliveries[0].Lock}})
		must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
			{Lock: got.Result.Deliveries[0].Lock, Verb: fsm.Complete},
		}})
		must(t, g, fsm.Header{}, fsm.Pulse{})
		must(t, g, a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1})

		free.Store(6 << 30) // slightly more than the reserve is not enough
		m.log.Disk().Refresh()
		if !g.Status().ReadOnly {
			t.Error("it alternates")
		}
		free.Store(7 << 30)
		m.log.Disk().Refresh()
		must(t, g, a.next(), send(1, body(3)))
		g.SetReadOnly(true)
		if code := codeOf(t, g, a.next(), send(1, body(4))); code != fsm.ServerBusy || !g.Status().ReadOnly {
			t.Errorf("told to be read-only: %v", code)
		}
		g.SetReadOnly(false)
		must(t, g, a.next(), send(1, body(5)))
		m.log.SetLowMemory(true)
		if code := codeOf(t, g, a.next(), send(1, body(6))); code != fsm.ServerBusy || !g.Status().ReadOnly {
			t.Errorf("low on memory: %v", code)
		}
		if s := m.log.DiskSpace(); !s.RefusesGrowth() || !s.LowMemory || s.ReadOnly {
			t.Errorf("low on memory: %+v", s)
		}
		must(t, g, a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1})
		m.log.SetLowMemory(false)
		must(t, g, a.next(), send(1, body(7)))
		if low, recovered := logged.errors.Load(), logged.infos.Load(); low != 1 || recovered != 1 {
			t.Errorf("logged %d and %d times", low, recovered)
		}
	})
}

// failingStore is a log whose writes fail with a given error.
type failingStore struct {
	raftlog.Store

	err     atomic.Pointer[error]
	refused atomic.Int64
}

func (s *failingStore) set(err error) {
	if err == nil {
		s.err.Store(nil)
		return
	}
	s.err.Store(&err)
}

func (s *failingStore) fails() error {
	if err := s.err.Load(); err != nil {
		s.refused.Add(1)
		return *err
	}
	return nil
}

func (s *failingStore) StoreLogs(entries []*raft.Log) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.StoreLogs(entries)
}

func (s *failingStore) DeleteRange(low, high uint64) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.DeleteRange(low, high)
}

func (s *failingStore) Set(key, value []byte) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.Set(key, value)
}

var errDiskFull error = &fs.PathError{Op: "write", Path: "0.db", Err: syscall.ENOSPC}

// withFailingStores puts a failingStore under each member's log before its groups are opened.
func withFailingStores(stores *sync.Map) func(*Config) {
	return func(c *Config) {
		c.Log.WrapStore(func(inner raftlog.Store) raftlog.Store {
			store, ok := inner.(*failingStore)
			if !ok {
				store = &failingStore{Store: inner}
			}
			stores.Store(c.Member, store)
			return store
		})
	}
}

// A leader whose log is on a full disk steps down, and nothing is lost or duplicated; the others continue;
// when there is space again it takes part again. It panics neither at the end of its term nor when it is
// closed while it waits for space.
func TestFullLogLosesNothing(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		var stores sync.Map
		ms, a := threeReplicas(t, withFailingStores(&stores))
		store := func(m *member) *failingStore {
			s, _ := stores.Load(m.id)
			return s.(*failingStore)
		}
		mustEventually(t, ms, a.next(), send(1, body(1)))
		for round := range 2 {
			lm, g := leader(t, ms, 1)
			store(lm).set(errDiskFull)
			h := a.next()
			_ = ask(t, g, h, send(1, body(2)))
			kit.Eventually(t, "it steps down", func() bool { return !g.Status().IsLeader })
			rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
			mustEventually(t, rest, h, send(1, body(2)))
			mustEventually(t, rest, a.next(), send(1, body(3)))
			// The periodic measurement still finds free space: only the writes fail.
			kit.Eventually(t, "it is read-only", func() bool { return g.Status().ReadOnly })
			if s := g.Status(); s.Halted != nil {
				t.Errorf("%+v", s)
			}
			if round == 1 {
				refused := store(lm).refused.Load()
				kit.Eventually(t, "it tries to write", func() bool { return store(lm).refused.Load() > refused+1 })
				lm.stop()
				lm.start(1)
				continue
			}
			store(lm).set(nil)
			waitCaughtUp(t, rest, lm)
		}
		sameEverywhere(t, ms)
		_, g := leader(t, ms, 1)
		if n := len(image(t, g)); n != 5 {
			t.Errorf("%d messages", n)
		}
	})
}

// After any other write error the content of the log is unknown: all groups of the member stop, and nothing
// more is written, even if the disk works again.
func TestBrokenLogStopsTheMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores sync.Map
		ms, a := threeReplicas(t, withFailingStores(&stores))
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		found, _ := stores.Load(lm.id)
		store, _ := found.(*failingStore)
		store.set(syscall.EIO)
		h := a.next()
		_ = ask(t, g, h, send(1, body(2)))
		kit.Eventually(t, "it stops", func() bool { return errors.Is(g.Status().Halted, syscall.EIO) })
		store.set(nil)
		if err := g.log.Set([]byte("x"), []byte("y")); !errors.Is(err, syscall.EIO) {
			t.Errorf("the log takes more: %v", err)
		}
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
		mustEventually(t, rest, h, send(1, body(2)))
	})
}

// A follower that has got a snapshot, and then has no space for its log for a while, goes on with the log. It gets no
// snapshot again: that would have less than it has, also of its configuration.
func TestFollowerGoesOnWithTheLogAfterAFullDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores sync.Map
		failing := withFailingStores(&stores)
		ms, a := threeReplicas(t, func(c *Config) {
			failing(c)
			c.Sizes.Snapshot, c.Sizes.Trailing = 1<<40, 0
		})
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		follower, rest := aFollower(ms, lm)
		follower.stop()
		for range 3 * trailingEntriesMin {
			mustEventually(t, rest, a.next(), send(1, body(1)))
		}
		kit.OK(t, g.Snapshot(t.Context()))
		follower.start(1)
		waitCaughtUp(t, rest, follower)
		before := newestSerial(follower)
		if before == 0 {
			t.Fatal("it came without a snapshot")
		}
		mustEventually(t, ms, a.next(), send(1, body(2)))
		waitCaughtUp(t, rest, follower)

		found, _ := stores.Load(follower.id)
		store, _ := found.(*failingStore)
		store.set(errDiskFull)
		mustEventually(t, ms, a.next(), send(1, body(3)))
		kit.Eventually(t, "the leader has tried often", func() bool { return store.refused.Load() > 8 })
		store.set(nil)
		mustEventually(t, ms, a.next(), send(1, body(4)))
		waitCaughtUp(t, rest, follower)
		if now := newestSerial(follower); now != before {
			t.Errorf("it got %d snapshots more", now-before)
		}
		sameEverywhere(t, ms)
	})
}
