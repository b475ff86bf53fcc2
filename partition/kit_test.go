package partition

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// raft never completes a transfer during which it is shut down, so its waiting goroutine stays (see await).
func TestMain(m *testing.M) {
	kit.Parallel(3)
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*deferError).Error"))
}

// inBubble runs a parallel test in virtual time. Its files are real: a call of the operating system only takes no time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	kit.InBubble(t, test)
}

// network connects members, in virtual time unless it is a benchmark's. Links can be cut, also in one direction.
type network struct {
	listener net.Listener
	connect  func(ctx context.Context) (net.Conn, error)

	mu     sync.Mutex
	next   uint64
	wanted map[uint64]chan net.Conn
	peers  map[fsm.MemberID]*member
	cut    map[[2]fsm.MemberID]bool
	conns  map[net.Conn][2]fsm.MemberID
	wg     sync.WaitGroup
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	host := simnet.New(1).Start(0)
	l, err := host.Listen(1)
	dial := host.Dial
	if _, isBenchmark := t.(*testing.B); isBenchmark {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		dial = (&net.Dialer{}).DialContext
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &network{
		listener: l, connect: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", l.Addr().String()) },
		wanted: make(map[uint64]chan net.Conn), peers: make(map[fsm.MemberID]*member),
		cut: make(map[[2]fsm.MemberID]bool), conns: make(map[net.Conn][2]fsm.MemberID),
	}
	n.wg.Go(n.serve)
	t.Cleanup(func() {
		_ = l.Close()
		n.wg.Wait()
	})
	return n
}

func (n *network) serve() {
	for {
		c, err := n.listener.Accept()
		if err != nil {
			return
		}
		var b [8]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			_ = c.Close()
			continue
		}
		n.mu.Lock()
		want := n.wanted[binary.BigEndian.Uint64(b[:])]
		n.mu.Unlock()
		want <- c
	}
}

var errCut = errors.New("link is cut")

func (n *network) dial(ctx context.Context, from, to fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error) {
	n.mu.Lock()
	cut := n.cut[[2]fsm.MemberID{from, to}]
	peer := n.peers[to]
	n.next++
	token := n.next
	got := make(chan net.Conn, 1)
	n.wanted[token] = got
	n.mu.Unlock()
	if cut || peer == nil {
		return nil, errCut
	}
	g := peer.group(id)
	if g == nil {
		return nil, fmt.Errorf("no process: %w", syscall.ECONNREFUSED)
	}
	if !g.Accepts(replica) {
		return nil, fmt.Errorf("replica %s is not there", replica)
	}
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, token)); err != nil {
		return nil, err
	}
	far := <-got
	n.mu.Lock()
	delete(n.wanted, token)
	if cut = n.cut[[2]fsm.MemberID{from, to}]; !cut { // it may have been cut meanwhile
		n.conns[c] = [2]fsm.MemberID{from, to}
		n.conns[far] = [2]fsm.MemberID{from, to}
	}
	n.mu.Unlock()
	if cut {
		return nil, errors.Join(errCut, c.Close(), far.Close())
	}
	g.Accept(from, far)
	return c, nil
}

// reach returns a peer whose process is alive.
func (n *network) reach(from, to fsm.MemberID) (*member, error) {
	n.mu.Lock()
	cut, peer := n.cut[[2]fsm.MemberID{from, to}], n.peers[to]
	n.mu.Unlock()
	switch {
	case cut || peer == nil:
		return nil, errCut
	case peer.group(1) == nil:
		return nil, fmt.Errorf("no process: %w", syscall.ECONNREFUSED)
	}
	return peer, nil
}

type goneKey struct{}

// gone returns a context in which the process of a member has ended. In every other context it is as it is, so no group
// acts of itself.
func gone(ctx context.Context, m fsm.MemberID) context.Context {
	return context.WithValue(ctx, goneKey{}, m)
}

// newLiveness returns the Liveness of a member.
func (n *network) newLiveness(of fsm.MemberID) *Liveness {
	return NewLiveness(func(ctx context.Context, to fsm.MemberID) error {
		if ctx.Value(goneKey{}) == to {
			return syscall.ECONNREFUSED
		}
		_, err := n.reach(of, to)
		return err
	}, func(ctx context.Context, to fsm.MemberID, q Question) (Verdict, error) {
		peer, err := n.reach(of, to)
		if err != nil {
			return 0, err
		}
		if peer.isEarlier {
			return 0, fsm.NotImplemented
		}
		if n.peers[of].isEarlier { // it asks in a way that nobody answers any more
			return 0, nil
		}
		if g := peer.group(q.Partition); g != nil && g.Accepts(q.Replica) {
			return g.Answer(ctx, q), nil
		}
		return 0, nil
	})
}

// isolate cuts a member off, or connects it again.
func (n *network) isolate(m fsm.MemberID, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.peers {
		n.cut[[2]fsm.MemberID{m, p}] = on
		n.cut[[2]fsm.MemberID{p, m}] = on
	}
	if on {
		for c, ends := range n.conns {
			if ends[0] == m || ends[1] == m {
				_ = c.Close()
				delete(n.conns, c)
			}
		}
	}
}

// cutLink cuts the link between two members.
func (n *network) cutLink(a, b fsm.MemberID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ends := [][2]fsm.MemberID{{a, b}, {b, a}}
	for _, e := range ends {
		n.cut[e] = true
	}
	for c, e := range n.conns {
		if slices.Contains(ends, e) {
			_ = c.Close()
			delete(n.conns, c)
		}
	}
}

// member stands for one process: a log and its groups.
type member struct {
	t      testing.TB
	net    *network
	id     fsm.MemberID
	dir    string
	tune   func(*Config)
	voters []Voter
	single bool         // its groups have no other replica
	logger *slog.Logger // of the log; nil: testLogger
	files  disk.FS      // nil: the operating system's
	store  raftlog.OpenStore
	kind   raftlog.Kind // of its log; empty: logKind

	isEarlier bool // its release does not know questions

	mu       sync.Mutex
	log      *raftlog.Log
	groups   map[fsm.PartitionID]*Group
	liveness *Liveness
}

// fastTiming is short, but long enough to keep a leader on a machine that is busy with other tests: a test
// that needs a stable leader must not lose it to the scheduler.
func fastTiming() Timing {
	return Timing{
		Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond, Lease: 400 * time.Millisecond,
		Commit: 20 * time.Millisecond, SnapshotEvery: time.Hour,
	}
}

// singleTimeout replaces the timeouts of raft in a group of one replica, which nobody can depose.
const singleTimeout = 100 * time.Millisecond

// logKind returns the kind of the logs of this run: all tests run on either.
func logKind() raftlog.Kind {
	return cmp.Or(raftlog.Kind(os.Getenv("PEEKLOCK_LOG_STORE")), raftlog.Journal)
}

func testLogger(t testing.TB) *slog.Logger {
	if os.Getenv("PEEKLOCK_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (m *member) group(id fsm.PartitionID) *Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[id]
}

// start opens the groups.
func (m *member) start(ids ...fsm.PartitionID) {
	m.t.Helper()
	if err := m.tryStart(ids...); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) tryStart(ids ...fsm.PartitionID) error {
	logger := m.logger
	if logger == nil {
		logger = testLogger(m.t)
	}
	log, err := raftlog.Open(raftlog.Config{
		Path: filepath.Join(m.dir, "raftlog", "0.db"), Kind: cmp.Or(m.kind, logKind()), SegmentBytes: 1 << 20, FS: m.files, OpenStore: m.store, Logger: logger,
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.log, m.groups, m.liveness = log, make(map[fsm.PartitionID]*Group), m.net.newLiveness(m.id)
	m.mu.Unlock()
	for _, id := range ids {
		g, err := Open(m.t.Context(), m.config(id))
		if err != nil {
			m.stop()
			return err
		}
		m.mu.Lock()
		m.groups[id] = g
		m.mu.Unlock()
	}
	return nil
}

func (m *member) config(id fsm.PartitionID) Config {
	cfg := Config{
		ID: id, Replica: string(m.id) + ".1", Member: m.id,
		Dir: filepath.Join(m.dir, "groups", fmt.Sprint(id)), Log: m.log,
		Machine:   func(b fsm.Bodies) Machine { return queue.New(b) },
		Bootstrap: m.voters,
		Dial: func(ctx context.Context, to fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error) {
			return m.net.dial(ctx, m.id, to, id, replica)
		},
		Liveness: m.liveness,
		Now:      time.Now, Logger: testLogger(m.t).With("member", string(m.id)),
		Timing: fastTiming(), Sizes: DefaultSizes(),
	}
	cfg.Sizes.Ballast = -1
	if m.single {
		cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = singleTimeout, singleTimeout, singleTimeout
	}
	if m.tune != nil {
		m.tune(&cfg)
	}
	return cfg
}

// stop closes everything, like an orderly shutdown.
func (m *member) stop() {
	m.mu.Lock()
	log, groups := m.log, m.groups
	m.log, m.groups = nil, nil
	m.mu.Unlock()
	if log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() {
			if err := g.Close(ctx); err != nil {
				m.t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := log.Close(); err != nil {
		m.t.Error(err)
	}
}

// newMembers creates n members that form their groups together.
func newMembers(t testing.TB, n int, tune func(*Config)) []*member {
	t.Helper()
	net := newNetwork(t)
	var voters []Voter
	var ms []*member
	for i := range n {
		id := fsm.MemberID(fmt.Sprintf("m%d", i))
		voters = append(voters, Voter{Replica: string(id) + ".1", Member: id})
		m := &member{t: t, net: net, id: id, dir: kit.MemoryDir(t), tune: tune, single: n == 1}
		ms = append(ms, m)
		net.peers[id] = m
	}
	for _, m := range ms {
		m.voters = voters
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, m := range ms {
			wg.Go(m.stop)
		}
		wg.Wait()
	})
	return ms
}

// awaitFirstLeader waits until a new group has a leader. The first of its voters has firstElectionWithin to become it.
// If the machine stalled for that long and raft's own timers do not expire either, nobody would ever lead; so the first
// voter then stands once more.
func awaitFirstLeader(t testing.TB, ms []*member, first *member) {
	t.Helper()
	late := time.Now().Add(firstElectionWithin + time.Second)
	kit.Eventually(t, "the new group has a leader", func() bool {
		if time.Now().After(late) {
			g := first.group(1)
			if e := g.candidacy.newElection(groupIsNew); e.leader == "" {
				g.candidacy.elect(t.Context(), e)
			}
		}
		return anyLeader(ms) != nil
	})
}

// leader waits for the leader of a group.
func leader(t testing.TB, ms []*member, id fsm.PartitionID) (*member, *Group) {
	t.Helper()
	var lm *member
	var lg *Group
	kit.Eventually(t, "a leader", func() bool {
		for _, m := range ms {
			if g := m.group(id); g != nil && g.Status().IsLeader {
				lm, lg = m, g
				return true
			}
		}
		return false
	})
	return lm, lg
}

// asker numbers commands as a router does.
type asker struct {
	origin   uint64
	receiver uint64
	serial   uint64
}

func (a *asker) next() fsm.Header {
	a.serial++
	return fsm.Header{Incarnation: a.origin, Receiver: a.receiver, Serial: a.serial, Low: a.serial}
}

// ask submits a command and waits for its answer.
func ask(t testing.TB, g *Group, h fsm.Header, c fsm.Command) Answer {
	t.Helper()
	got := make(chan Answer, 1)
	g.Submit(fsm.AppendCommand(nil, h, c), func(a Answer) { got <- a })
	return await1(t, got)
}

func await1(t testing.TB, got chan Answer) Answer {
	t.Helper()
	timer := time.NewTimer(60 * time.Second)
	defer timer.Stop()
	select {
	case a := <-got:
		return a
	case <-timer.C:
		t.Fatal("no answer")
		return Answer{}
	}
}

// must is ask for a command that must succeed, at a group of one replica, which cannot lose its leadership to
// another. With several replicas use mustEventually.
func must(t testing.TB, g *Group, h fsm.Header, c fsm.Command) fsm.Result {
	t.Helper()
	a := ask(t, g, h, c)
	if a.Outcome != Done || a.Result.Code != fsm.OK {
		t.Fatalf("%T: outcome %d, %v", c, a.Outcome, a.Result.Code)
	}
	return a.Result
}

// mustEventually is must for groups of several replicas, at the current leader: leadership can change at any
// moment on a busy machine. See router.
func mustEventually(t testing.TB, ms []*member, h fsm.Header, c fsm.Command) fsm.Result {
	t.Helper()
	encoded := fsm.AppendCommand(nil, h, c)
	r := router(t, ms, h, func(g *Group, done func(Answer)) { g.Submit(encoded, done) })
	if r.Code != fsm.OK {
		t.Fatalf("%T: %v", c, r.Code)
	}
	return r
}

// lockEventually is lock at the current leader.
func lockEventually(t testing.TB, ms []*member, h fsm.Header, c fsm.LockMessages, wait time.Duration) fsm.Result {
	t.Helper()
	r := router(t, ms, h, func(g *Group, done func(Answer)) {
		g.Lock(LockRequest{Header: h, Lock: c, Until: time.Now().Add(wait), Done: done})
	})
	if r.Code != fsm.OK {
		t.Fatalf("lock: %v", r.Code)
	}
	return r
}

// atLeader calls f at the leader and repeats it after elections. It returns the error of a replica that was
// the leader before and after the call, in one term.
func atLeader(t testing.TB, ms []*member, f func(m *member, g *Group) error) error {
	t.Helper()
	var err error
	kit.Eventually(t, "a leader that stays for a moment", func() bool {
		m, g := leader(t, ms, 1)
		before := g.Status()
		err = f(m, g)
		after := g.Status()
		// Status learns of a lost leadership a little later than raft.
		isLeader := after.IsLeader && g.instance.Load().raft.State() == raft.Leader
		return err == nil || before.IsLeader && isLeader && before.Term == after.Term
	})
	return err
}

// transferTo makes a member the leader.
func transferTo(t testing.TB, ms []*member, to *member) {
	t.Helper()
	kit.Eventually(t, "it leads", func() bool {
		if to.group(1).Status().IsLeader {
			return true
		}
		if g := anyLeader(ms); g != nil {
			_ = g.Transfer(t.Context(), to.id) // once in a term
		}
		return false
	})
}

// currentLeader returns a leader that has applied everything that was answered before. A new leader has it in
// its log but may not have applied it.
func currentLeader(t testing.TB, ms []*member) *Group {
	t.Helper()
	var lg *Group
	kit.OK(t, atLeader(t, ms, func(_ *member, g *Group) error {
		lg = g
		return g.Read(t.Context(), func(Machine) {})
	}))
	return lg
}

// waitCaughtUp waits until a replica has applied everything that was answered before.
func waitCaughtUp(t testing.TB, ms []*member, m *member) {
	t.Helper()
	currentLeader(t, ms)
	kit.Eventually(t, "it catches up", func() bool {
		g := anyLeader(ms)
		return g != nil && m.group(1).Status().Applied >= g.Status().Applied
	})
}

func settings() fsm.EntitySettings {
	return fsm.EntitySettings{LockDuration: 30000, MaxDeliveryCount: 10, MaxMessageBytes: 1 << 20}
}

func body(i int) []byte { return fmt.Appendf(nil, "body %d", i) }

func send(entity fsm.EntityID, bodies ...[]byte) fsm.SendMessages {
	c := fsm.SendMessages{Entity: entity}
	for _, b := range bodies {
		c.Messages = append(c.Messages, fsm.Message{Payload: b})
	}
	return c
}

func lockOf(entity fsm.EntityID, n uint32) fsm.LockMessages {
	return fsm.LockMessages{Address: fsm.Address{Entity: entity}, Max: n, MaxBytes: 1 << 24}
}

// lock requests messages and waits.
func lock(t testing.TB, g *Group, h fsm.Header, c fsm.LockMessages, wait time.Duration) Answer {
	t.Helper()
	got := make(chan Answer, 1)
	g.Lock(LockRequest{Header: h, Lock: c, Until: time.Now().Add(wait), Done: func(a Answer) { got <- a }})
	return await1(t, got)
}
