// Package fakegroup has a replica of a partition for tests of the packages that use replicas. Only
// tests import it; it decides nothing: a test answers what was submitted.
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
	// Answer, when set, answers submissions at once.
	Answer func(command []byte) partition.Answer
	Forget bool // do not keep submissions
}

// Submission is one call of Submit.
type Submission struct {
	Command []byte
	Done    func(partition.Answer)
}

// Submit does what [partition.Group] does.
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

// Lock does what [partition.Group] does.
func (g *Group) Lock(r partition.LockRequest) func() {
	// As with a real group there is one answer: a stop that comes after it says nothing.
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

// Status does what [partition.Group] does.
func (g *Group) Status() partition.Status {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return g.State
}

// View does what [partition.Group] does.
func (g *Group) View(func(partition.Machine)) {}

// Read does what [partition.Group] does.
func (g *Group) Read(context.Context, func(partition.Machine)) error {
	return partition.ErrNotLeader
}

// ReadBodies does what [partition.Group] does.
func (g *Group) ReadBodies(d []fsm.Delivery) ([]fsm.Delivery, error) { return d, nil }

// Await waits until that many submissions and locks have come.
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

// Lead makes the fake group the leader, or not.
func (g *Group) Lead(leads bool, term uint64) {
	g.Mu.Lock()
	g.State.IsLeader, g.State.Term = leads, term
	g.Mu.Unlock()
}

// Take returns what was submitted so far and forgets it.
func (g *Group) Take() []Submission {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	taken := g.Submits
	g.Submits = nil
	return taken
}
