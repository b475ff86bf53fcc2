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

// lineLog keeps what is logged.
type lineLog struct {
	slog.Handler

	mu    sync.Mutex
	lines []string
}

func (l *lineLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *lineLog) Handle(_ context.Context, r slog.Record) error { //nolint:gocritic // the interface has it so
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

func (l *lineLog) count(part string) (n int) {
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
	lines := &lineLog{}
	m, g, a := oneGroup(t, func(c *Config) {
		c.Free = func(string) (uint64, uint64, error) { return free.Load(), 100 << 30, nil }
		c.Log.space.logger = slog.New(lines)
	})
	if s := m.log.Space(); s.Reserve != 5<<30 || s.ReadOnly || s.Total != 100<<30 {
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
	m.log.space.look()
	if !g.Status().ReadOnly {
		t.Error("it goes to and fro")
	}
	free.Store(7 << 30)
	m.log.space.look()
	must(t, g, a.next(), send(1, body(3)))
	g.SetReadOnly(true)
	if code := codeOf(t, g, a.next(), send(1, body(4))); code != fsm.ServerBusy || !g.Status().ReadOnly {
		t.Errorf("told to be read-only: %v", code)
	}
	g.SetReadOnly(false)
	must(t, g, a.next(), send(1, body(5)))
	m.log.SetShortOfMemory(true)
	if code := codeOf(t, g, a.next(), send(1, body(6))); code != fsm.ServerBusy || !g.Status().ReadOnly {
		t.Errorf("short of memory: %v", code)
	}
	if s := m.log.Space(); !s.Short() || !s.ShortOfMemory || s.ReadOnly {
		t.Errorf("short of memory: %+v", s)
	}
	must(t, g, a.next(), fsm.PurgeMessages{Address: fsm.Address{Entity: 1}, Max: 1})
	m.log.SetShortOfMemory(false)
	must(t, g, a.next(), send(1, body(7)))
	if full, again := lines.count("nearly full"), lines.count("room on the disk again"); full != 1 || again != 1 {
		t.Errorf("said %d and %d times", full, again)
	}
}

func TestReserveOf(t *testing.T) {
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
		s := &space{reserve: x.reserve}
		if got := s.reserveOf(x.total); got/1000 != x.want/1000 {
			t.Errorf("%+v: %d", x, got)
		}
	}
}

// fullStore is a log on a disk that is full, or broken, when it is told so.
type fullStore struct {
	logStore

	err     atomic.Pointer[error]
	refused atomic.Int64
}

func (s *fullStore) set(err error) {
	if err == nil {
		s.err.Store(nil)
		return
	}
	s.err.Store(&err)
}

func (s *fullStore) fails() error {
	if err := s.err.Load(); err != nil {
		s.refused.Add(1)
		return *err
	}
	return nil
}

func (s *fullStore) StoreLogs(entries []*raft.Log) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.logStore.StoreLogs(entries)
}

func (s *fullStore) DeleteRange(low, high uint64) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.logStore.DeleteRange(low, high)
}

func (s *fullStore) Set(key, value []byte) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.logStore.Set(key, value)
}

var errNoSpace error = &fs.PathError{Op: "write", Path: "0.db", Err: syscall.ENOSPC}

// onFullStores puts such a store under each member's log, before its groups are opened.
func onFullStores(stores *sync.Map) func(*Config) {
	return func(c *Config) {
		if _, ok := c.Log.store.(*fullStore); !ok {
			c.Log.store = &fullStore{logStore: c.Log.store}
		}
		store, _ := c.Log.store.(*fullStore)
		stores.Store(c.Member, store)
	}
}

// A leader whose log has no room steps down and nothing is lost or doubled; the others go
// on; when there is room again it takes part again. Not even the end of its term makes it
// panic, nor being closed while it waits for room.
func TestLogWithoutRoom(t *testing.T) {
	t.Parallel()
	var stores sync.Map
	ms, a := threeReplicas(t, onFullStores(&stores))
	store := func(m *member) *fullStore {
		s, _ := stores.Load(m.id)
		return s.(*fullStore)
	}
	insist(t, ms, a.next(), send(1, body(1)))
	for round := range 2 {
		lm, g := leader(t, ms, 1)
		store(lm).set(errNoSpace)
		h := a.next()
		_ = ask(t, g, h, send(1, body(2)))
		eventually(t, "it steps down", func() bool { return !g.Status().Leads })
		rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
		insist(t, rest, h, send(1, body(2)))
		insist(t, rest, a.next(), send(1, body(3)))
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
		catchUp(t, rest, lm)
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
	ms, a := threeReplicas(t, onFullStores(&stores))
	insist(t, ms, a.next(), send(1, body(1)))
	lm, g := leader(t, ms, 1)
	found, _ := stores.Load(lm.id)
	store, _ := found.(*fullStore)
	store.set(syscall.EIO)
	h := a.next()
	_ = ask(t, g, h, send(1, body(2)))
	eventually(t, "it stops", func() bool { return errors.Is(g.Status().Halted, syscall.EIO) })
	store.set(nil)
	if err := g.log.put("x", []byte("y")); !errors.Is(err, syscall.EIO) {
		t.Errorf("the log takes more: %v", err)
	}
	rest := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
	insist(t, rest, h, send(1, body(2)))
	// A sync that says that the disk is full may have lost pages too.
	if retriable(syscall.ENOSPC) || !retriable(errNoSpace) || retriable(&fs.PathError{Op: "write", Err: syscall.EIO}) {
		t.Error("retriable")
	}
}

// A deletion that failed has not happened, also in memory: raft would else write behind
// entries that a restart finds again.
func TestFailedDeletionIsNoDeletion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.db")
	l := openTestLog(t, path)
	store := &fullStore{logStore: l.store}
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
		if err := g.DeleteRange(x.low, x.high); !noRoom(err) {
			t.Errorf("%s: %v", x.name, err)
		}
		if got := extentOf(g); got != (extent{1, 2000}) {
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
