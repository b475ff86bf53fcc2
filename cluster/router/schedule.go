package router

import (
	"github.com/peeklock/peeklock/fsm"
)

// Schedule stores messages, all or none, of which some or all have an EnqueueAt. done gets one
// sequence number per message, in order, for CancelScheduled; 0 for a duplicate that was dropped. As
// with Send, the caller must not change the messages afterwards.
func (r *Router) Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	n := len(messages)
	r.sendMessages(at, messages, func(result fsm.Result) {
		if result.Code != fsm.OK {
			done(result.Code, nil)
			return
		}
		numbers := result.Sequences
		if len(numbers) != n { // no duplicate: the numbers are consecutive
			numbers = make([]fsm.SequenceNumber, n)
			for i := range numbers {
				numbers[i] = result.Sequence + fsm.SequenceNumber(i)
			}
		}
		done(fsm.OK, numbers)
	})
}

// CancelScheduled removes scheduled messages (1 to 4096), all or none: MessageNotFound when one of
// the numbers is not a scheduled message.
func (r *Router) CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	if at.Sub != fsm.MainQueue {
		done(fsm.MessageNotFound) // nothing is scheduled there
		return
	}
	if len(at.Shards) > 0 {
		r.cancelShards(at, sequences, done)
		return
	}
	command := fsm.CancelScheduled{Entity: at.ID, Sequences: sequences}
	r.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code) })
}
