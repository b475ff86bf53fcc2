package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// network is members without raft that try to bootstrap a cluster. Its links can be cut.
type network struct {
	mu      sync.Mutex
	members map[fsm.MemberID]*Bootstrapper
	sees    func(from, to fsm.MemberID) bool
	answers func(from, to fsm.MemberID) bool // of two members that see each other; nil: always
	changed notify.Broadcast                 // members appeared
}

func newNetwork(t *testing.T, expect, members int) *network {
	t.Helper()
	w := &network{members: map[fsm.MemberID]*Bootstrapper{}, sees: func(_, _ fsm.MemberID) bool { return true }}
	for i := range members {
		id := fsm.MemberID(fmt.Sprintf("%c", 'A'+i))
		w.members[id] = open(t, Config{Self: id, Expect: expect, Peers: networkPeers{w, id}, Logger: slog.New(slog.DiscardHandler)}, t.TempDir())
	}
	return w
}

func open(t *testing.T, config Config, path string) *Bootstrapper {
	t.Helper()
	dir := kit.Must(datadir.Open(nil, path))(t)
	t.Cleanup(func() { _ = dir.Close() })
	config.Dir = dir
	return New(config)
}

// restart replaces a member by one that knows what is on disk.
func (w *network) restart(t *testing.T, id fsm.MemberID) *Bootstrapper {
	t.Helper()
	config := w.members[id].config
	kit.OK(t, config.Dir.Close())
	w.members[id] = open(t, config, filepath.Dir(config.Dir.LogPath()))
	return w.members[id]
}

// networkPeers is the network as one member sees it.
type networkPeers struct {
	network *network
	self    fsm.MemberID
}

func (p networkPeers) Alive() (alive []fsm.MemberID) {
	w := p.network
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.members {
		if id == p.self || w.sees(p.self, id) {
			alive = append(alive, id)
		}
	}
	return alive
}

func (p networkPeers) Changed() <-chan struct{} { return p.network.changed.Wait() }

func (p networkPeers) reach(to fsm.MemberID) (*Bootstrapper, error) {
	w := p.network
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.members[to]
	if b == nil || !w.sees(p.self, to) || w.answers != nil && !w.answers(p.self, to) {
		return nil, errors.New("unreachable")
	}
	return b, nil
}

func (p networkPeers) Hello(_ context.Context, to fsm.MemberID, _ HelloRequest) (Hello, error) {
	b, err := p.reach(to)
	if err != nil {
		return Hello{}, err
	}
	return b.Hello(), nil
}

func (p networkPeers) Pledge(_ context.Context, to fsm.MemberID, request PledgeRequest) (bool, error) {
	b, err := p.reach(to)
	if err != nil {
		return false, err
	}
	return b.Pledge(request)
}

// setCluster gives a member data of a cluster.
func (w *network) setCluster(t *testing.T, id fsm.MemberID, cluster string) {
	t.Helper()
	b := w.members[id]
	b.hasData = true
	kit.OK(t, b.config.Dir.Update(func(i *datadir.Identity) { i.Cluster = cluster }))
}

func TestBootstrapMembersAgree(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 3, 3)
	ctx := t.Context()
	for _, id := range []fsm.MemberID{"B", "C"} { // not the lowest: they wait
		if _, ready, _, err := w.members[id].tryOnce(ctx); ready || err != nil {
			t.Fatalf("%s: ready %v, %v", id, ready, err)
		}
	}
	want := []fsm.MemberID{"A", "B", "C"}
	for _, id := range want { // A decides, then the others follow it
		initial, ready, _, err := w.members[id].tryOnce(ctx)
		if err != nil || !ready || !slices.Equal(initial, want) {
			t.Fatalf("%s: %v, ready %v, %v", id, initial, ready, err)
		}
	}
	// All of it was made durable before anything was opened.
	if kept := w.restart(t, "B").config.Dir.Identity(); !kept.Bootstrapping || !slices.Equal(kept.Pledge, want) {
		t.Fatalf("kept %+v", kept)
	}
}

func TestBootstrapWaitsForExpectedMembers(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 3, 2)
	for _, id := range []fsm.MemberID{"A", "B"} {
		if _, ready, _, err := w.members[id].tryOnce(t.Context()); ready || err != nil {
			t.Fatalf("%s bootstraps with two of three: %v, %v", id, ready, err)
		}
	}
	// Enough by gossip is not enough: each must answer.
	w = newNetwork(t, 3, 3)
	w.answers = func(_, to fsm.MemberID) bool { return to != "C" }
	if _, ready, _, err := w.members["A"].tryOnce(t.Context()); ready || err != nil {
		t.Fatalf("bootstraps with a member that does not answer: %v, %v", ready, err)
	}
}

func TestMemberJoinsClusterThatHasData(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 2, 3)
	w.setCluster(t, "C", "X")
	for _, id := range []fsm.MemberID{"A", "B"} {
		initial, ready, _, err := w.members[id].tryOnce(t.Context())
		if err != nil || !ready || initial != nil {
			t.Fatalf("%s: bootstraps %v, ready %v, %v", id, initial, ready, err)
		}
	}
	if granted, err := w.members["A"].Pledge(PledgeRequest{InitialMembers: []fsm.MemberID{"0", "A"}}); granted || err != nil {
		t.Fatalf("a member that has data pledged: %v, %v", granted, err)
	}
	// Two clusters in sight: neither is joined.
	w = newNetwork(t, 2, 3)
	for id, cluster := range map[fsm.MemberID]string{"B": "X", "C": "Y"} {
		w.setCluster(t, id, cluster)
	}
	if _, ready, _, err := w.members["A"].tryOnce(t.Context()); ready || err != nil {
		t.Fatalf("joined one of two clusters: %v, %v", ready, err)
	}
}

func TestPledgeBindsUntilReleased(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 3, 4)
	c := w.members["C"]
	abc, bcd := []fsm.MemberID{"A", "B", "C"}, []fsm.MemberID{"B", "C", "D"}
	pledge := func(members []fsm.MemberID) bool {
		granted := kit.Must(c.Pledge(PledgeRequest{InitialMembers: members}))(t)
		return granted
	}
	first, again, other := pledge(bcd), pledge(bcd), pledge(abc)
	if !first || !again || other {
		t.Fatal("a pledge binds to its initial members, and to no others")
	}
	// B is trying just that: C stays bound, also after a restart.
	w.members["B"].proposed = bcd
	c = w.restart(t, "C")
	if _, _, _, err := c.tryOnce(t.Context()); err != nil || pledge(abc) {
		t.Fatalf("the pledge was forgotten: %v", err)
	}
	// B tries something else: C is free.
	w.members["B"].proposed = nil
	if _, _, _, err := c.tryOnce(t.Context()); err != nil || !pledge(abc) {
		t.Fatalf("the pledge was kept forever: %v", err)
	}
	for _, wrong := range [][]fsm.MemberID{{"A", "B"}, {"C", "D"}, {"A", "B", "C", "D", "E", "F"}} {
		if _, err := c.Pledge(PledgeRequest{InitialMembers: wrong}); !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("pledged %v: %v", wrong, err)
		}
	}
}

// lateAnswers delivers the answers of other members only after something else has happened.
type lateAnswers struct {
	networkPeers

	meanwhile func()
}

func (p lateAnswers) Hello(ctx context.Context, to fsm.MemberID, request HelloRequest) (Hello, error) {
	hello, err := p.networkPeers.Hello(ctx, to, request)
	p.meanwhile()
	return hello, err
}

// TestOldAnswerReleasesNoPledge checks that a member stays bound to its pledge when it hears an answer from
// before it gave the pledge: the member that it was given to had not begun to try the bootstrap then.
func TestOldAnswerReleasesNoPledge(t *testing.T) {
	t.Parallel()
	abc, bcd := []fsm.MemberID{"A", "B", "C"}, []fsm.MemberID{"B", "C", "D"}
	for _, before := range []bool{false, true} { // whether C has given the same pledge before
		w := newNetwork(t, 3, 4)
		c := w.members["C"]
		pledge := func(members []fsm.MemberID) bool {
			granted, err := c.Pledge(PledgeRequest{InitialMembers: members})
			if err != nil {
				t.Error(err)
			}
			return granted
		}
		if before && !pledge(bcd) {
			t.Fatal("no pledge")
		}
		var once sync.Once
		c.config.Peers = lateAnswers{networkPeers{w, "C"}, func() {
			once.Do(func() {
				if !pledge(bcd) {
					t.Error("no pledge")
				}
			})
		}}
		if _, _, _, err := c.tryOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pledge(abc) {
			t.Errorf("given before %v: an answer from before the pledge has released it", before)
		}
		// B still tries nothing of the kind, and says so when it is asked again.
		if _, _, _, err := c.tryOnce(t.Context()); err != nil || !pledge(abc) {
			t.Errorf("given before %v: the pledge was kept forever: %v", before, err)
		}
	}
}

// fullFiles are files on a disk that can be full for member.json.
type fullFiles struct {
	disk.OS

	full *atomic.Bool
}

func (f fullFiles) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if f.full.Load() && strings.HasSuffix(path, "member.json.new") {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
	}
	return f.OS.OpenFile(path, flag, mode)
}

// A pledge that could not be written is not granted, also when it is asked for again: a crash would forget it.
func TestPledgeThatIsNotOnDiskIsNotGranted(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	dir := kit.Must(datadir.Open(fullFiles{full: &full}, t.TempDir()))(t)
	t.Cleanup(func() { _ = dir.Close() })
	self := dir.Identity().Member
	b := New(Config{Self: self, Expect: 3, Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	request := PledgeRequest{InitialMembers: []fsm.MemberID{"A", self, "z"}}
	full.Store(true)
	for range 2 {
		if granted, err := b.Pledge(request); granted || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with a full disk the pledge gives %v, %v; want false, %v", granted, err, syscall.ENOSPC)
		}
	}
	if pledge := dir.Identity().Pledge; pledge != nil {
		t.Errorf("the identity has the pledge %v, want none: it is not on disk", pledge)
	}
	full.Store(false)
	if granted, err := b.Pledge(request); !granted || err != nil {
		t.Errorf("with space the pledge gives %v, %v; want true, nil", granted, err)
	}
}

// A decision that could not be written is not reported to the others: they would join a cluster that nobody creates.
func TestDecisionThatIsNotOnDiskIsNotReported(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 3, 3)
	var full atomic.Bool
	dir := kit.Must(datadir.Open(fullFiles{full: &full}, t.TempDir()))(t)
	t.Cleanup(func() { _ = dir.Close() })
	a := w.members["A"]
	a.config.Dir = dir
	full.Store(true)
	if _, err := a.Run(t.Context(), time.Millisecond); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the bootstrap with a full disk gives %v, want %v", err, syscall.ENOSPC)
	}
	if hello := a.Hello(); hello.HasData {
		t.Errorf("the member reports %+v, want no data", hello)
	}
	if _, ready, waitingFor, err := w.members["B"].tryOnce(t.Context()); ready || err != nil {
		t.Errorf("another member is ready (%v, waits for %q, %v), want it to wait for the first one", ready, waitingFor, err)
	}
}

// TestRefusedPledgeKeepsNoOtherAlive checks that a request that is refused again and again does not keep a pledge that
// nobody needs any longer.
func TestRefusedPledgeKeepsNoOtherAlive(t *testing.T) {
	t.Parallel()
	abc, bcd := []fsm.MemberID{"A", "B", "C"}, []fsm.MemberID{"B", "C", "D"}
	w := newNetwork(t, 3, 4)
	c := w.members["C"]
	if granted, err := c.Pledge(PledgeRequest{InitialMembers: bcd}); !granted || err != nil {
		t.Fatal("no pledge", err)
	}
	c.config.Peers = lateAnswers{networkPeers{w, "C"}, func() {
		_, _ = c.Pledge(PledgeRequest{InitialMembers: abc}) // refused the first time; its answers are not late
	}}
	if _, _, _, err := c.tryOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if granted, err := c.Pledge(PledgeRequest{InitialMembers: abc}); !granted || err != nil {
		t.Error("refused requests have kept the pledge:", err)
	}
}

// TestBootstrapDoesNotWaitForInterval checks that members bootstrap soon after the last one has appeared, and follow the
// decision soon after their pledge.
func TestBootstrapDoesNotWaitForInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Hour
		w := newNetwork(t, 3, 3)
		appeared := false
		w.sees = func(from, to fsm.MemberID) bool { return appeared || (from != "C" && to != "C") }
		began := time.Now()
		ended := make(chan error, 3)
		for _, b := range w.members {
			go func() {
				_, err := b.Run(t.Context(), interval)
				ended <- err
			}()
		}
		synctest.Wait()
		w.mu.Lock()
		appeared = true
		w.mu.Unlock()
		w.changed.Notify()
		for range 3 {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took >= interval/2 {
			t.Errorf("took %s at an interval of %s", took, interval)
		}
	})
}

// TestDecidedBootstrapsShareNoMember lets six members that expect three go round with links that
// come and go at random. Whatever happens, two decided bootstraps share no member, and
// once the links are whole everybody ends in one of them.
func TestDecidedBootstrapsShareNoMember(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	const histories, atATime = 200, 8 // they wait for disks
	var playing sync.WaitGroup
	for first := range uint64(atATime) {
		playing.Go(func() {
			for seed := first; seed < histories && !t.Failed(); seed += atATime {
				runRandomBootstraps(t, seed)
			}
		})
	}
	playing.Wait()
}

// runRandomBootstraps runs one history.
func runRandomBootstraps(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := newNetwork(t, 3, 6)
	ids := []fsm.MemberID{"A", "B", "C", "D", "E", "F"}
	cut := map[[2]fsm.MemberID]bool{}
	w.sees = func(from, to fsm.MemberID) bool { return !cut[[2]fsm.MemberID{from, to}] }
	decided := map[string][]fsm.MemberID{}
	ended := map[fsm.MemberID]bool{}
	for step := range 400 {
		if step < 200 {
			for range 3 {
				link := [2]fsm.MemberID{ids[random.IntN(6)], ids[random.IntN(6)]}
				cut[link] = random.IntN(2) == 0
			}
		} else {
			clear(cut)
		}
		id := ids[random.IntN(6)]
		if ended[id] {
			continue
		}
		initial, ready, _, err := w.members[id].tryOnce(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if ended[id] = ready; ready && initial != nil {
			key, _ := json.Marshal(initial)
			decided[string(key)] = initial
		}
	}
	member := map[fsm.MemberID]string{}
	for key, initial := range decided {
		for _, id := range initial {
			if other, taken := member[id]; taken && other != key {
				t.Errorf("seed %d: %s is in %s and %s", seed, id, other, key)
			}
			member[id] = key
		}
	}
	if len(decided) == 0 || len(ended) < 6 {
		t.Errorf("seed %d: decided %v, ended %v", seed, decided, ended)
	}
}

func TestBootstrapEndsWithItsContextOrACluster(t *testing.T) {
	t.Parallel()
	w := newNetwork(t, 3, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.members["A"].Run(ctx, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ended with %v", err)
	}
	w = newNetwork(t, 1, 1)
	initial, err := w.members["A"].Run(t.Context(), time.Millisecond)
	if err != nil || !slices.Equal(initial, []fsm.MemberID{"A"}) {
		t.Fatalf("alone: %v, %v", initial, err)
	}
}
