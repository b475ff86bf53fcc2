package partition

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// countingLog keeps what is logged.
type countingLog struct {
	slog.Handler

	mu    sync.Mutex
	lines []string
}

func (l *countingLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *countingLog) Handle(_ context.Context, r slog.Record) error { //nolint:gocritic // the interface has it so
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

func (l *countingLog) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// try submits and tells the code of a command that was not refused as Busy.
func codeOf(t *testing.T, g *Group, h fsm.Header, c fsm.Command) fsm.Code {
	t.Helper()
	return ask(t, g, h, c).Result.Code
}

// Below the reserve a leader takes nothing that grows and everything else, and goes on by
// itself when there is clearly more room again. It says so once.
func TestReadOnlyBelowTheReserve(t *testing.T) {
	t.Parallel()
	var free atomic.Uint64
	free.Store(50 << 30)
	lines := &countingLog{}
	m, g, a := openSingle(t, func(c *Config) {
		c.MeasureDisk = func(string) (uint64, uint64, error) { return free.Load(), 100 << 30, nil }
		c.Log.diskSpace.logger = slog.New(lines)
	})
	if s := m.log.DiskSpace(); s.Reserve != 5<<30 || s.ReadOnly || s.Total != 100<<30 {
		t.Fatalf("%+v", s)
	}
	must(t, g, a.next(), send(1, body(1)))
	ballast := filepath.Join(m.dir, "raftlog", ballastFile)
	if info, err := os.Stat(ballast); err != nil || info.Size() != ballastBytesDefault {
		t.Errorf("ballast: %v", err)
	}
	free.Store(5<<30 - 1)
	eventually(t, "it is read-only", func() bool { return g.Status().ReadOnly })
	for _, c := range []fsm.Command{send(1, body(2)), fsm.Transact{}, fsm.TransferMessages{Entity: 1}, fsm.CreateEntity{}, fsm.CreateNamespace{}} {
		if x := ask(t, g, a.next(), c); x.Outcome != Refused || x.Result.Code != fsm.ServerBusy {
			t.Errorf("%T: %+v", c, x)
		}
	}
	r := &asker{origin: 7, lane: 1}
	got := lock(t, g, r.next(), lockOf(1, 1), time.Second)
	if len(got.Result.Deliveries) != 1 {
		t.Fatalf("%+v", got)
	}
	must(t, g, a.next(), fsm.RenewLocks{Address: fsm.Address{Entity: 1}, Locks: []fsm.LockID{got.Result.Deliveries[0].Lock}})
	must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
		{Lock: got.Result.Deliveries[0].Lock, Verb: fsm.Complete},
	}})
	must(t, g, fsm.Header{}, fsm.Pulse{})
	must(t, g, a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1})

	free.Store(6 << 30) // a little more is not enough
	m.log.diskSpace.refresh()
	if !g.Status().ReadOnly {
		t.Error("it goes to and fro")
	}
	free.Store(7 << 30)
	m.log.diskSpace.refresh()
	must(t, g, a.next(), send(1, body(3)))
	g.SetReadOnly(true)
	if code := codeOf(t, g, a.next(), send(1, body(4))); code != fsm.ServerBusy || !g.Status().ReadOnly {
		t.Errorf("told to be read-only: %v", code)
	}
	g.SetReadOnly(false)
	must(t, g, a.next(), send(1, body(5)))
	m.log.SetLowMemory(true)
	if code := codeOf(t, g, a.next(), send(1, body(6))); code != fsm.ServerBusy || !g.Status().ReadOnly {
		t.Errorf("short of memory: %v", code)
	}
	if s := m.log.DiskSpace(); !s.RefusesGrowth() || !s.LowMemory || s.ReadOnly {
		t.Errorf("short of memory: %+v", s)
	}
	must(t, g, a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1})
	m.log.SetLowMemory(false)
	must(t, g, a.next(), send(1, body(7)))
	if full, again := lines.count("nearly full"), lines.count("room on the disk again"); full != 1 || again != 1 {
		t.Errorf("said %d and %d times", full, again)
	}
}

func TestReserveFollowsTheDiskSize(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		reserve int64
		total   uint64
		want    uint64
	}{
		{0, 10 << 30, 1 << 30},
		{0, 100 << 30, 5 << 30},
		{0, 4 << 40, 16 << 30},
		{7, 4 << 40, 7},
		{-1, 4 << 40, 0},
	} {
		s := &diskSpace{reserve: x.reserve}
		if got := s.reserveOf(x.total); got/1000 != x.want/1000 {
			t.Errorf("%+v: %d", x, got)
		}
	}
}

// failingStore is a log on a disk that is full, or broken, when it is told so.
type failingStore struct {
	logStore

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
	return s.logStore.StoreLogs(entries)
}

func (s *failingStore) DeleteRange(low, high uint64) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.logStore.DeleteRange(low, high)
}

func (s *failingStore) Set(key, value []byte) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.logStore.Set(key, value)
}

var errNoSpace error = &fs.PathError{Op: "write", Path: "0.db", Err: syscall.ENOSPC}

// withFailingStores puts such a store under each member's log, before its groups are opened.
func withFailingStores(stores *sync.Map) func(*Config) {
	return func(c *Config) {
		if _, ok := c.Log.store.(*failingStore); !ok {
			c.Log.store = &failingStore{logStore: c.Log.store}
		}
		store, _ := c.Log.store.(*failingStore)
		stores.Store(c.Member, store)
	}
}

// A leader whose log has no room steps down and nothing is lost or doubled; the others go
// on; when there is room again it takes part again. Not even the end of its term makes it
// panic, nor being closed while it waits for room.
func TestFullLogLosesNothing(t *testing.T) {
	t.Parallel()
	var stores sync.Map
	ms, a := threeReplicas(t, withFailingStores(&stores))
	store := func(m *member) *failingStore {
		s, _ := stores.Load(m.id)
		return s.(*failingStore)
	}
	mustEventually(t, ms, a.next(), send(1, body(1)))
	for round := range 2 {
		lm, g := leader(t, ms, 1)
		store(lm).set(errNoSpace)
		h := a.next()
		_ = ask(t, g, h, send(1, body(2)))
		eventually(t, "it steps down", func() bool { return !g.Status().IsLeader })
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
		mustEventually(t, rest, h, send(1, body(2)))
		mustEventually(t, rest, a.next(), send(1, body(3)))
		// The disk itself has room, which it looks at now and then: only writes know better.
		eventually(t, "it is read-only", func() bool { return g.Status().ReadOnly })
		if s := g.Status(); s.Halted != nil {
			t.Errorf("%+v", s)
		}
		if round == 1 {
			refused := store(lm).refused.Load()
			eventually(t, "it tries to write", func() bool { return store(lm).refused.Load() > refused+1 })
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
}

// After any other error of a write nobody knows what the log holds: all groups of the member
// stop, and nothing more is written, even if the disk would take it.
func TestBrokenLogStopsTheMember(t *testing.T) {
	t.Parallel()
	var stores sync.Map
	ms, a := threeReplicas(t, withFailingStores(&stores))
	mustEventually(t, ms, a.next(), send(1, body(1)))
	lm, g := leader(t, ms, 1)
	found, _ := stores.Load(lm.id)
	store, _ := found.(*failingStore)
	store.set(syscall.EIO)
	h := a.next()
	_ = ask(t, g, h, send(1, body(2)))
	eventually(t, "it stops", func() bool { return errors.Is(g.Status().Halted, syscall.EIO) })
	store.set(nil)
	if err := g.log.put("x", []byte("y")); !errors.Is(err, syscall.EIO) {
		t.Errorf("the log takes more: %v", err)
	}
	rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
	mustEventually(t, rest, h, send(1, body(2)))
	// A sync that says that the disk is full may have lost pages too.
	if isRetriable(syscall.ENOSPC) || !isRetriable(errNoSpace) || isRetriable(&fs.PathError{Op: "write", Err: syscall.EIO}) {
		t.Error("retriable")
	}
}

// A deletion that failed has not happened, also in memory: raft would else write behind
// entries that a restart finds again.
func TestFailedDeletionIsReverted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.db")
	l := openTestLog(t, path)
	store := &failingStore{logStore: l.store}
	l.store = store
	for _, x := range []struct {
		name      string
		low, high uint64
	}{{"front", 1, 700}, {"end", 300, 2000}, {"all", 1, 2000}} {
		g := testGroupLog(t, l, fsm.PartitionID(len(x.name)))
		if err := g.StoreLogs(entries(1, 2000, 1)); err != nil {
			t.Fatal(err)
		}
		store.set(errNoSpace)
		if err := g.DeleteRange(x.low, x.high); !isNoSpace(err) {
			t.Errorf("%s: %v", x.name, err)
		}
		if got := extentOf(g); got != (logRange{1, 2000}) {
			t.Errorf("%s: %+v", x.name, got)
		}
		store.set(nil)
		if err := g.DeleteRange(x.low, x.high); err != nil {
			t.Error(err)
		}
		var e raft.Log
		if err := g.GetLog(x.low, &e); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
