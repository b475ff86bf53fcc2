package fsm

import (
	"github.com/peeklock/peeklock/fsm/planted"
)

// beginEpoch begins an epoch. A batch in flight that gets the new epoch was received before under a
// serial of the source's former life, or was not: it can arrive twice and is never lost.
func (q *Queues) beginEpoch(c *BeginEpoch) Code {
	if code := c.check(); code != OK {
		return code
	}
	if c.Serial == 0 {
		if !planted.Active(planted.RestoreKeepsEpoch) {
			q.epoch = c.Epoch
		}
		return OK
	}
	sub := q.forwardSource(c.Address)
	if sub == nil || !sub.out.hasBatch() || sub.out.serial != c.Serial || sub.out.epoch != c.Replaces {
		return OK
	}
	out := *sub.out
	out.epoch = c.Epoch
	sub.out, q.epoch = &out, c.Epoch
	return OK
}
