package client

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of CloseReceiver commands.
const (
	// keptClosesMax bounds the receiver ids that are kept for one partition: as many as its state machine
	// remembers of one incarnation (fsm.receiversPerIncarnationMax). The state machine forgets further
	// receivers only together with this incarnation.
	keptClosesMax = 65536
	closesMax     = 256         // that are outstanding: other requests have the rest of the window, and wait behind no more of them
	closeAgainMin = time.Second // between two times that closes are submitted again
)

// keptCloses are the closed receivers that the state machine may still remember: closesMax are outstanding already, or their
// CloseReceiver was refused or its outcome is unknown.
type keptCloses struct {
	receivers   []uint64
	outstanding int
	due         time.Time // when they may be submitted again after a failure
}

// keep keeps a receiver, unless there are too many.
func (c *keptCloses) keep(id uint64) {
	if len(c.receivers)+c.outstanding < keptClosesMax {
		c.receivers = append(c.receivers, id)
	}
}

// take returns the oldest receivers for which there is a place, and counts them as outstanding.
func (c *keptCloses) take() []uint64 {
	n := max(0, min(len(c.receivers), closesMax-c.outstanding))
	taken := c.receivers[:n:n]
	if c.receivers = c.receivers[n:]; len(c.receivers) == 0 {
		c.receivers = nil
	}
	c.outstanding += n
	return taken
}

// closeReceiver lets the state machine forget a receiver id, and keeps the id unless the state machine has
// answered. It does not block.
func (p *Client) closeReceiver(id uint64) {
	p.mu.Lock()
	isFull := p.closes.outstanding >= closesMax
	if isFull {
		p.closes.keep(id)
	} else {
		p.closes.outstanding++
	}
	p.mu.Unlock()
	if !isFull {
		p.submitCloses(id)
	}
}

// submitCloses submits closes that are counted as outstanding. The next one that is kept follows each that is done.
func (p *Client) submitCloses(ids ...uint64) {
	for _, id := range ids {
		p.Submit(fsm.CloseReceiver{Incarnation: p.incarnation, Receiver: id}, func(result fsm.Result) {
			p.mu.Lock()
			p.closes.outstanding--
			var next []uint64
			switch {
			case p.closed:
			case result.Code == fsm.ServerBusy || result.Code == fsm.Timeout:
				p.closes.keep(id)
			default:
				next = p.closes.take()
			}
			p.mu.Unlock()
			p.submitCloses(next...)
		})
	}
}

// closeAgain submits kept closes, oldest first, when none is outstanding: a partition without a leader has closesMax in its
// window, and one that has a leader again gets them step by step.
func (p *Client) closeAgain(now time.Time) {
	p.mu.Lock()
	closes := &p.closes
	var again []uint64
	if len(closes.receivers) > 0 && closes.outstanding == 0 && !now.Before(closes.due) {
		again, closes.due = closes.take(), now.Add(closeAgainMin)
	}
	p.mu.Unlock()
	p.submitCloses(again...)
}
