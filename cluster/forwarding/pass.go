package forwarding

import (
	"context"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// pass is the state of one pass through a dead-letter queue, oldest dead letter first. Refused dead letters stay and are tried
// again in the next pass, so they delay those behind them by one backoff at most. The next leader begins a pass of its own.
type pass struct {
	after   fsm.SequenceNumber // the last dead letter that was tried since one was refused, 0 while none was
	refused fsm.Code           // of the first one that was refused
	pause   error              // why the pass has to wait once the batch in flight has ended
}

// record records how the batch in flight fared: codes has one code per message, or is nil if all were accepted.
func (p *pass) record(batch []fsm.Delivery, codes []fsm.Code) {
	first := slices.IndexFunc(codes, refused)
	if p.refused == fsm.OK && first < 0 {
		return
	}
	p.after = batch[len(batch)-1].Lock.Sequence
	if first >= 0 && p.refused == fsm.OK {
		p.refused = codes[first]
	}
	switch {
	case allRefused(codes, fsm.EntityNotFound, fsm.EntityDisabled):
		p.after = 0 // those behind would fare no better
	case !allRefused(codes, fsm.QuotaExceeded):
		return
	}
	p.pause = fmt.Errorf("transfer a batch of %d dead letters: %w", len(batch), codes[0])
}

// allRefused reports whether all messages were refused with these codes.
func allRefused(codes []fsm.Code, with ...fsm.Code) bool {
	return len(codes) > 0 && !slices.ContainsFunc(codes, func(code fsm.Code) bool { return !slices.Contains(with, code) })
}

// endPass ends the pass of a task that has found nothing more to forward. If dead letters were refused in it, the next pass
// begins after a backoff.
func (f *Forwarder) endPass(ctx context.Context, task *forwardTask) stepResult {
	last := task.pass
	task.pass = pass{}
	if last.refused != fsm.OK {
		return f.backOff(ctx, task, fmt.Errorf("forward dead letters: %w", last.refused))
	}
	if task.isOfDeadLetters() {
		f.logResumed(ctx, task)
	}
	return stepDone
}
