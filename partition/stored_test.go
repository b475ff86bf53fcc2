package partition

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
)

// slowStore holds writes of entries while the test has the token of its disk. It is no mutex, because virtual time
// stops while a goroutine waits for one.
type slowStore struct {
	raftlog.Store

	disk chan struct{}
}

func (s *slowStore) StoreLogs(entries []*raft.Log) error {
	s.disk <- struct{}{}
	defer func() { <-s.disk }()
	return s.Store.StoreLogs(entries)
}

// TestLeaderAppliesWhatIsOnItsDisk checks that a command is not confirmed, and applied by no replica, before the leader has
// it on disk: followers have it long before, because they write at the same time, but the leader counts itself as one of the quorum.
func TestLeaderAppliesWhatIsOnItsDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stores sync.Map
		ms, a := threeReplicas(t, func(c *Config) {
			patient(c) // the leader waits for its disk, and must not step down meanwhile
			c.Log.WrapStore(func(inner raftlog.Store) raftlog.Store {
				store, ok := inner.(*slowStore)
				if !ok {
					store = &slowStore{Store: inner, disk: make(chan struct{}, 1)}
				}
				stores.Store(c.Member, store)
				return store
			})
		})
		mustEventually(t, ms, a.next(), send(1, body(1)))
		lm, g := leader(t, ms, 1)
		found, _ := stores.Load(lm.id)
		store, _ := found.(*slowStore)
		store.disk <- struct{}{}
		before := g.applied.Load()
		done := make(chan Answer, 1)
		g.Submit(fsm.AppendCommand(nil, a.next(), send(1, body(2))), func(a Answer) { done <- a })
		kit.Eventually(t, "raft counts it as committed", func() bool { return g.Status().Commit > before })
		// Raft sends the commit index of its own accord within twice this time.
		<-time.After(4 * g.cfg.Timing.Commit)
		for _, m := range ms {
			if now := m.group(1).applied.Load(); now > before {
				t.Errorf("%s has applied entry %d", m.id, now)
			}
		}
		select {
		case <-done:
			<-store.disk
			t.Fatal("the send was confirmed")
		default:
		}
		<-store.disk
		if answer := await1(t, done); answer.Outcome != Done {
			t.Errorf("outcome %d", answer.Outcome)
		}
		sameEverywhere(t, ms)
	})
}

// TestReadIsRefusedDuringATransfer: while a leader transfers its leadership, the next one may have committed more already.
func TestReadIsRefusedDuringATransfer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, nil)
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		transferring := func(on bool) {
			g.proposer.mu.Lock()
			defer g.proposer.mu.Unlock()
			g.proposer.transferring = on
		}
		transferring(true)
		if err := g.Read(t.Context(), func(Machine) { t.Error("it reads") }); !errors.Is(err, ErrNotLeader) {
			t.Error(err)
		}
		transferring(false)
		if err := g.Read(t.Context(), func(Machine) {}); err != nil {
			t.Error(err)
		}
	})
}
