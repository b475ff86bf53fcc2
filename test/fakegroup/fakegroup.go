package fakegroup

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

const waitMax = kit.WaitMax

// Group is a replica of a partition that the test controls. It satisfies rpc.Group.
type Group struct {
	Mu      sync.Mutex // guards State, Submits, Locks, Cancels and Answer
	State   partition.Status
	Submits []Submission
	Locks   []partition.LockRequest
	Cancels int
	arrived notify.Broadcast
	// questions is how often Status was called.
	questions int
	// Answer, when set, answers submissions immediately.
	Answer func(command []byte) partition.Answer
	Forget bool // discard submissions instead of keeping them
	// Asked, when set, is called by Status before it returns the State that it has read. Set it before the group is used.
	Asked func()
}

// Submission is one call of Submit.
type Submission struct {
	Command []byte
	Done    func(partition.Answer)
}

// Submit implements [partition.Group].
func (g *Group) Submit(command []byte, done func(partition.Answer)) {
	g.Mu.Lock()
	answer := g.Answer
	if !g.Forget {
		g.Submits = append(g.Submits, Submission{command, done})
	}
	g.Mu.Unlock()
	g.arrived.Notify()
	if answer != nil {
		done(answer(command))
	}
}

// Lock implements [partition.Group].
func (g *Group) Lock(r partition.LockRequest) func() {
	// A real group answers once, too: a stop after the answer has no effect.
	var answered atomic.Bool
	answer := r.Done
	r.Done = func(a partition.Answer) {
		if answered.CompareAndSwap(false, true) {
			answer(a)
		}
	}
	g.Mu.Lock()
	g.Locks = append(g.Locks, r)
	g.Mu.Unlock()
	g.arrived.Notify()
	return func() {
		g.Mu.Lock()
		g.Cancels++
		g.Mu.Unlock()
		r.Done(partition.Answer{Outcome: partition.Done})
	}
}

// Status implements [partition.Group].
func (g *Group) Status() partition.Status {
	g.Mu.Lock()
	g.questions++
	state := g.State
	g.Mu.Unlock()
	if g.Asked != nil {
		g.Asked()
	}
	return state
}

// Leader implements [partition.Group].
func (g *Group) Leader() fsm.MemberID {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return g.State.Leader
}

// Questions returns how often Status was called.
func (g *Group) Questions() int {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return g.questions
}

// View implements [partition.Group].
func (g *Group) View(func(partition.Machine)) {}

// Read implements [partition.Group].
func (g *Group) Read(context.Context, func(partition.Machine)) error {
	return partition.ErrNotLeader
}

// ReadBodies implements [partition.Group].
func (g *Group) ReadBodies(d []fsm.Delivery) ([]fsm.Delivery, error) { return d, nil }

// Await waits until the group has received the given numbers of submissions and locks.
func (g *Group) Await(t *testing.T, submits, locks int) {
	t.Helper()
	for {
		arrived := g.arrived.Wait()
		g.Mu.Lock()
		enough := len(g.Submits) >= submits && len(g.Locks) >= locks
		g.Mu.Unlock()
		if enough {
			return
		}
		select {
		case <-arrived:
		case <-time.After(waitMax):
			t.Fatalf("%d submissions and %d locks did not come", submits, locks)
		}
	}
}

// Lead sets whether the fake group is the leader, and its term.
func (g *Group) Lead(leads bool, term uint64) {
	g.Mu.Lock()
	g.State.IsLeader, g.State.Term = leads, term
	g.Mu.Unlock()
}

// Take returns the submissions so far and forgets them.
func (g *Group) Take() []Submission {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	taken := g.Submits
	g.Submits = nil
	return taken
}
