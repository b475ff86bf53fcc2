package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// bootstrapNetwork is members without raft that try to found, with links that can be cut.
type bootstrapNetwork struct {
	mu      sync.Mutex
	members map[fsm.MemberID]*bootstrapper
	sees    func(from, to fsm.MemberID) bool
}

func newBootstrapNetwork(t *testing.T, expect, members int) *bootstrapNetwork {
	t.Helper()
	w := &bootstrapNetwork{members: map[fsm.MemberID]*bootstrapper{}, sees: func(_, _ fsm.MemberID) bool { return true }}
	for i := range members {
		dir, err := openDataDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dir.close() })
		id := fsm.MemberID(fmt.Sprintf("%c", 'A'+i))
		w.members[id] = &bootstrapper{
			self: id, expect: expect, dataDir: dir, log: testLogger(),
			alive: func() []fsm.MemberID { return w.seen(id) },
			query: func(_ context.Context, to fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
				return w.query(id, to, kind, arguments)
			},
		}
	}
	return w
}

func (w *bootstrapNetwork) seen(by fsm.MemberID) (alive []fsm.MemberID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.members {
		if id == by || w.sees(by, id) {
			alive = append(alive, id)
		}
	}
	return alive
}

func (w *bootstrapNetwork) query(from, to fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
	w.mu.Lock()
	f, sees := w.members[to], w.sees(from, to)
	w.mu.Unlock()
	if f == nil || !sees {
		return rpc.Reply{}, errors.New("unreachable")
	}
	if kind == rpc.QueryHello {
		return rpc.NewReply(f.hello(), nil), nil
	}
	return rpc.AnswerTyped(arguments, f.handlePledge), nil
}

func TestBootstrapMembersAgree(t *testing.T) {
	t.Parallel()
	w := newBootstrapNetwork(t, 3, 3)
	ctx := t.Context()
	for _, id := range []fsm.MemberID{"B", "C"} { // not the lowest: they wait
		if _, ready, _, err := w.members[id].tryOnce(ctx); ready || err != nil {
			t.Fatalf("%s: ready %v, %v", id, ready, err)
		}
	}
	want := []fsm.MemberID{"A", "B", "C"}
	for _, id := range want { // A decides, then the others follow it
		founders, ready, _, err := w.members[id].tryOnce(ctx)
		if err != nil || !ready || !slices.Equal(founders, want) {
			t.Fatalf("%s: %v, ready %v, %v", id, founders, ready, err)
		}
	}
	// All of it was made durable before anything was opened.
	var kept identity
	f := w.members["B"].dataDir
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	if kept = f.identity; !kept.Bootstrapping || !slices.Equal(kept.Pledge, want) {
		t.Fatalf("kept %+v", kept)
	}
}

func TestBootstrapWaitsForExpectedMembers(t *testing.T) {
	t.Parallel()
	w := newBootstrapNetwork(t, 3, 2)
	for _, id := range []fsm.MemberID{"A", "B"} {
		if _, ready, _, err := w.members[id].tryOnce(t.Context()); ready || err != nil {
			t.Fatalf("%s founds with two of three: %v, %v", id, ready, err)
		}
	}
	// Enough by gossip is not enough: each must answer.
	w = newBootstrapNetwork(t, 3, 3)
	w.members["C"].query = nil
	answer := w.members["A"].query
	w.members["A"].query = func(ctx context.Context, to fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
		if to == "C" {
			return rpc.Reply{}, errors.New("unreachable")
		}
		return answer(ctx, to, kind, arguments)
	}
	if _, ready, _, err := w.members["A"].tryOnce(t.Context()); ready || err != nil {
		t.Fatalf("founds with a member that does not answer: %v, %v", ready, err)
	}
}

func TestMemberJoinsClusterThatHasData(t *testing.T) {
	t.Parallel()
	w := newBootstrapNetwork(t, 2, 3)
	w.members["C"].hasData = true
	w.members["C"].dataDir.identity.Cluster = "X"
	for _, id := range []fsm.MemberID{"A", "B"} {
		founders, ready, _, err := w.members[id].tryOnce(t.Context())
		if err != nil || !ready || founders != nil {
			t.Fatalf("%s: founds %v, ready %v, %v", id, founders, ready, err)
		}
	}
	if said, err := w.members["A"].handlePledge(pledgeQuery{InitialMembers: []fsm.MemberID{"0", "A"}}); said || err != nil {
		t.Fatalf("a member that holds data promised: %v, %v", said, err)
	}
	// Two clusters in sight: neither is joined.
	w = newBootstrapNetwork(t, 2, 3)
	for id, cluster := range map[fsm.MemberID]string{"B": "X", "C": "Y"} {
		w.members[id].hasData, w.members[id].dataDir.identity.Cluster = true, cluster
	}
	if _, ready, _, err := w.members["A"].tryOnce(t.Context()); ready || err != nil {
		t.Fatalf("joined one of two clusters: %v, %v", ready, err)
	}
}

func TestPledgeBindsUntilReleased(t *testing.T) {
	t.Parallel()
	w := newBootstrapNetwork(t, 3, 4)
	c := w.members["C"]
	abc, bcd := []fsm.MemberID{"A", "B", "C"}, []fsm.MemberID{"B", "C", "D"}
	promise := func(members []fsm.MemberID) bool {
		said, err := c.handlePledge(pledgeQuery{InitialMembers: members})
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	first, again, other := promise(bcd), promise(bcd), promise(abc)
	if !first || !again || other {
		t.Fatal("a promise binds to its founders, and to no others")
	}
	// B is trying just that: C stays bound, also over a restart.
	w.members["B"].proposed = bcd
	if err := c.dataDir.load(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := c.tryOnce(t.Context()); err != nil || promise(abc) {
		t.Fatalf("the promise was forgotten: %v", err)
	}
	// B tries something else: C is free.
	w.members["B"].proposed = nil
	if _, _, _, err := c.tryOnce(t.Context()); err != nil || !promise(abc) {
		t.Fatalf("the promise was kept for ever: %v", err)
	}
	for _, wrong := range [][]fsm.MemberID{{"A", "B"}, {"C", "D"}, {"A", "B", "C", "D", "E", "F"}} {
		if _, err := c.handlePledge(pledgeQuery{InitialMembers: wrong}); !errors.Is(err, fsm.InvalidArgument) {
			t.Errorf("promised %v: %v", wrong, err)
		}
	}
}

// TestDecidedBootstrapsShareNoMember lets six members that expect three go round with links that
// come and go at random. Whatever happens, two decided foundings share no member, and
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

// runRandomBootstraps plays one history.
func runRandomBootstraps(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := newBootstrapNetwork(t, 3, 6)
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
		founders, ready, _, err := w.members[id].tryOnce(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if ended[id] = ready; ready && founders != nil {
			key, _ := json.Marshal(founders)
			decided[string(key)] = founders
		}
	}
	member := map[fsm.MemberID]string{}
	for key, founders := range decided {
		for _, id := range founders {
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

func TestBootstrapRunEnds(t *testing.T) {
	t.Parallel()
	w := newBootstrapNetwork(t, 3, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.members["A"].run(ctx, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ended with %v", err)
	}
	w = newBootstrapNetwork(t, 1, 1)
	founders, err := w.members["A"].run(t.Context(), time.Millisecond)
	if err != nil || !slices.Equal(founders, []fsm.MemberID{"A"}) {
		t.Fatalf("alone: %v, %v", founders, err)
	}
}
