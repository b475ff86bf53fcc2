package client

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// tick ends overdue requests, verifies the leader when it is slow, and closes receivers again whose
// closing was not confirmed. It is called a few times a second.
func (p *Client) tick(now time.Time) {
	p.mu.Lock()
	var overdue []*request
	for serial := p.low; serial < p.next; serial++ {
		q := *p.windowSlot(serial)
		if q.state == requestDone {
			continue
		}
		if now.Before(q.deadline) {
			break // deadlines rise with serials
		}
		overdue = append(overdue, q)
	}
	for len(p.waiting) > 0 && !now.Before(p.waiting[0].deadline) {
		q := p.waiting[0]
		q.state = requestDone
		p.waiting = p.waiting[1:]
		p.counts.busy.Add(1)
		defer q.done(fsm.Result{Code: fsm.ServerBusy})
	}
	slow := p.low < p.next && (*p.windowSlot(p.low)).state == requestSent && now.Sub((*p.windowSlot(p.low)).sentAt) > p.timing.Suspect
	givenUp, slowReceivers := p.expireReceivers(now)
	if (slow || slowReceivers) && now.Sub(p.verifiedAt) > p.timing.Suspect {
		p.verifiedAt = now
		p.findLeader()
	}
	p.mu.Unlock()
	for _, q := range overdue {
		p.finishUnanswered(q)
	}
	for _, call := range givenUp {
		call.giveUp()
	}
	p.closeAgain(now)
}

// close ends all requests and lock calls, with ServerBusy unless they were possibly applied.
func (p *Client) close() {
	p.mu.Lock()
	p.closed = true
	var open []*request
	for serial := p.low; serial < p.next; serial++ {
		if q := *p.windowSlot(serial); q.state != requestDone {
			open = append(open, q)
		}
	}
	waiting := p.waiting
	p.waiting = nil
	calls := make([]*lockCall, 0, len(p.receivers))
	for receiver := range p.receivers {
		calls = append(calls, receiver.call)
	}
	p.mu.Unlock()
	for _, q := range open {
		p.finishUnanswered(q)
	}
	for _, q := range waiting {
		q.done(fsm.Result{Code: fsm.ServerBusy})
	}
	for _, call := range calls {
		call.finish(fsm.Result{Code: fsm.ServerBusy})
	}
	p.leaderKnown.Notify()
}

// expireReceivers returns the overdue calls, and whether a call has waited for so long that its
// leader must be verified; mu is held.
func (p *Client) expireReceivers(now time.Time) (givenUp []*lockCall, slow bool) {
	for receiver := range p.receivers {
		call := receiver.call
		late := now.Sub(call.until)
		switch {
		case late <= 0:
		case call.state == requestQueued && !call.unknown, late > p.timing.Retry:
			givenUp = append(givenUp, call)
		case late > lockGrace:
			slow = true
		}
	}
	return givenUp, slow
}

// takeTouched returns the entities from which messages were received, and those that receivers wait
// for.
func (p *Client) takeTouched() []fsm.Entity {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for receiver := range p.receivers {
		p.markTouched(receiver, now)
	}
	entities := p.touched
	p.touched = nil
	return entities
}
