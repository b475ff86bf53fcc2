package partition

import (
	"testing"
	"time"
)

// TestProposerSleepsWhileADuePulseCannotBeProposed checks that a due deadline does not keep run busy while leadership
// is being transferred or too many entries are in flight: the end of either wakes it.
func TestProposerSleepsWhileADuePulseCannotBeProposed(t *testing.T) {
	t.Parallel()
	g := &Group{}
	new(testClock).use(&g.cfg)
	g.deadlineWall.Store(1)
	p := &g.proposer
	p.g, p.leading = g, true
	if wait := p.sleepFor(time.Now()); wait > 0 {
		t.Fatalf("sleeps %v although a pulse is due", wait)
	}
	p.transferring = true
	if wait := p.sleepFor(time.Now()); wait <= 0 {
		t.Error("does not sleep during a transfer")
	}
	p.transferring, p.inFlight = false, make([]*batch, entriesInFlight)
	for i := range p.inFlight {
		p.inFlight[i] = &batch{composedAt: time.Now()}
	}
	if wait := p.sleepFor(time.Now()); wait <= 0 {
		t.Error("does not sleep while as many entries as allowed are in flight")
	}
}
