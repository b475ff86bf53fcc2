package confirm

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
)

// member is a member whose leader answers with an index, or not at all.
type member struct {
	leader, applied atomic.Uint64 // leader 0: there is none
	changed         notify.Broadcast
}

func (m *member) run(t *testing.T) *Catalog {
	c := New(Config{
		Ask: func(context.Context) (uint64, error) {
			if index := m.leader.Load(); index > 0 {
				return index, nil
			}
			return 0, errors.New("no leader")
		},
		Applied: m.applied.Load, Changed: m.changed.Wait,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

func (m *member) apply(index uint64) {
	m.applied.Store(index)
	m.changed.Notify()
}

// pass waits for virtual time.
func pass(d time.Duration) { <-time.After(d) }

// TestRequestsWaitForTheLeader checks that requests of a member that starts wait until its replica has applied what the leader
// names, that they wait for at most StartWaitMax, and that later ones do not wait.
func TestRequestsWaitForTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m member
		m.apply(7)
		c, began := m.run(t), time.Now()
		if c.Await(t.Context()) {
			t.Error("confirmed without a leader")
		}
		if waited := time.Since(began); waited != StartWaitMax {
			t.Errorf("waited %s for a leader, not %s", waited, StartWaitMax)
		}
		began = time.Now()
		if c.Await(t.Context()) || time.Since(began) != 0 {
			t.Errorf("waited once more, for %s", time.Since(began))
		}
		m.leader.Store(9)
		pass(time.Second)
		if c.IsConfirmed() {
			t.Error("confirmed although the replica has not applied the index of the leader")
		}
		m.apply(9)
		pass(time.Second)
		if !c.IsConfirmed() {
			t.Error("not confirmed although the replica has applied the index of the leader")
		}
	})
}

// TestAwaitEndsWithTheConfirmation checks that a request waits no longer than the confirmation takes.
func TestAwaitEndsWithTheConfirmation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m member
		m.leader.Store(9)
		c, began := m.run(t), time.Now()
		time.AfterFunc(time.Second, func() { m.apply(9) })
		if !c.Await(t.Context()) || time.Since(began) != time.Second {
			t.Errorf("confirmed: %v, after %s, not after 1s", c.IsConfirmed(), time.Since(began))
		}
	})
}

// TestConfirmationEnds checks that a member that is cut off from the leader believes its replica for ValidFor, and again when it
// reaches the leader.
func TestConfirmationEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m member
		m.leader.Store(9)
		m.apply(9)
		c := m.run(t)
		pass(time.Hour)
		if !c.IsConfirmed() {
			t.Error("not confirmed although the leader answers")
		}
		m.leader.Store(0)
		pass(ValidFor - repeatAfter - time.Second)
		if !c.IsConfirmed() {
			t.Errorf("not confirmed before %s have passed", ValidFor)
		}
		pass(repeatAfter + time.Second)
		if c.IsConfirmed() {
			t.Errorf("confirmed by an answer that is older than %s", ValidFor)
		}
		m.leader.Store(9)
		pass(time.Second)
		if !c.IsConfirmed() {
			t.Error("not confirmed although the leader answers again")
		}
	})
}
