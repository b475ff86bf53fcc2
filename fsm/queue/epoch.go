package queue

import (
	"github.com/peeklock/peeklock/fsm"
)

// beginEpoch begins an epoch. A batch in flight that gets the new epoch was received before under a
// serial of the source's former life, or was not: it can arrive twice and is never lost.
func (q *Machine) beginEpoch(c *fsm.BeginEpoch) fsm.Code {
	if code := c.Check(); code != fsm.OK {
		return code
	}
	if c.Serial == 0 {
		q.epoch = c.Epoch
		return fsm.OK
	}
	sub := q.forwardSource(c.Address)
	if sub == nil || !sub.out.hasBatch() || sub.out.serial != c.Serial || sub.out.epoch != c.Replaces {
		return fsm.OK
	}
	out := *sub.out
	out.epoch = c.Epoch
	sub.out, q.epoch = &out, c.Epoch
	return fsm.OK
}
