package receiver

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Consumer is the receiver of a consuming link with a selector. It peeks, evaluates the selector, and locks
// what is selected as it was peeked at; everything else stays for other receivers.
//
// It looks at each message once, in order, and then at new ones as they come. A message that was not ready at that time can
// become ready later, at its old place: what the client returns is looked at again from there on, in order, and a pass over
// all older messages finds the others. Passes are rare enough to take a tenth of a processor at most.
type Consumer struct {
	search

	scanner          scanner
	receiveAndDelete bool

	// Used by the outstanding Lock only.
	next   []fsm.SequenceNumber // by shard: it has looked at the messages below
	polled time.Time            // when it found nothing new last
	again  pass

	returned []fsm.SequenceNumber // by shard: the lowest number that was returned and not looked at again, 0 for none; search.mu guards it
}

// pass is a pass over the messages that a Consumer has looked at before.
type pass struct {
	running bool
	end     []fsm.SequenceNumber // by shard: where it ends
	shard   int                  // the one that it is in
	next    fsm.SequenceNumber   // where it goes on there
	cost    int                  // units so far
	due     time.Time            // when the next pass begins
}

// NewConsumer returns a Consumer of the messages that the selector of source selects. It locks them, or receives and
// deletes them.
func NewConsumer(source Source, receiveAndDelete bool) *Consumer {
	next := source.start()
	return &Consumer{scanner: newScanner(source, selectPeekWithin), receiveAndDelete: receiveAndDelete, next: next, returned: make([]fsm.SequenceNumber, len(next))}
}

// Lock implements amqp.Receiver.
func (r *Consumer) Lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	r.begin(r.scanner.Recovered, wait, done, func(ctx context.Context) (fsm.Code, []fsm.Delivery) {
		return r.run(ctx, min(most, r.scanner.PeekMessagesMax), min(mostBytes, r.scanner.PeekBytesMax), wait)
	})
}

// run looks for messages until it finds some, or the time is over. A drain, which does not wait, ends when it has looked at
// every message. A leader that cannot be reached at the moment is asked again, as other receivers do.
func (r *Consumer) run(ctx context.Context, most, mostBytes int, wait time.Duration) (fsm.Code, []fsm.Delivery) {
	drains := wait == 0
	if drains {
		r.beginPass()
		wait = scanWithin
	}
	until := time.Now().Add(wait)
	for pause := selectPauseMin; ; pause = min(2*pause, PauseMax) {
		r.goBack()
		found, more, err := r.look(ctx, most, mostBytes)
		switch {
		case len(found) > 0 || ctx.Err() != nil || time.Now().After(until):
			return fsm.OK, found
		case err != nil:
			if code := codeOf(err); code != fsm.ServerBusy && code != fsm.Timeout {
				return code, nil
			}
			if drains {
				r.beginPass()
			}
		case more:
			pause = selectPauseMin / 2
			continue
		case drains:
			return fsm.OK, nil
		}
		sleep(ctx, pause)
	}
}

// look looks at the next messages of each shard, and takes a step of a pass over older ones if one is due. more means
// that there is more to look at now. An error of one shard does not keep the others from being looked at.
func (r *Consumer) look(ctx context.Context, most, mostBytes int) (found []fsm.Delivery, more bool, err error) {
	if !r.again.running || time.Since(r.polled) >= selectPauseMin {
		for shard := range r.next {
			p, locked, failure := r.page(ctx, shard, r.next[shard], most, mostBytes)
			if failure != nil {
				err = failure
				continue
			}
			if r.next[shard], more = p.next, more || !p.empty; len(locked) > 0 {
				return locked, true, nil
			}
		}
		if !more {
			r.polled = time.Now()
		}
	}
	if !r.again.running && time.Now().After(r.again.due) {
		r.beginPass()
	}
	if r.again.running {
		var failure error
		if found, failure = r.passOn(ctx, most, mostBytes); failure != nil {
			err = failure
		}
	}
	return found, more || r.again.running, err
}

// beginPass begins a pass over the messages that it has looked at so far.
func (r *Consumer) beginPass() { r.again = pass{running: true, end: slices.Clone(r.next)} }

// passOn takes one step of the pass. A shard that does not answer is left to the next pass.
func (r *Consumer) passOn(ctx context.Context, most, mostBytes int) (found []fsm.Delivery, err error) {
	a := &r.again
	if a.next = max(a.next, firstOf(a.shard)); a.next < a.end[a.shard] {
		var p scanned
		p, found, err = r.page(ctx, a.shard, a.next, most, mostBytes)
		a.next, a.cost = p.next, a.cost+p.cost
		if err == nil && !p.empty && a.next < a.end[a.shard] {
			return found, nil
		}
	}
	if a.shard++; a.shard == len(a.end) {
		pause := max(AgainMin, time.Duration(AgainPause*a.cost)*UnitTime)
		*a = pass{due: time.Now().Add(pause)}
	}
	return found, err
}

// page looks at messages of a shard from a number on, and locks those that are selected. After an error the next page begins at
// the same number.
func (r *Consumer) page(ctx context.Context, shard int, from fsm.SequenceNumber, most, mostBytes int) (scanned, []fsm.Delivery, error) {
	p, err := r.scanner.page(ctx, shard, from, most, mostBytes, func(d *fsm.Delivery) bool { return d.State == fsm.Ready })
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || len(p.selected) == 0 {
		return p, nil, err
	}
	seen := make([]fsm.LockID, len(p.selected))
	for i := range p.selected {
		seen[i] = p.selected[i].Lock
	}
	p.selected = nil // the payloads come again
	type answer struct {
		code  fsm.Code
		found []fsm.Delivery
	}
	answers := make(chan answer, 1)
	r.scanner.Broker.FetchReady(r.scanner.At, seen, r.receiveAndDelete, func(code fsm.Code, found []fsm.Delivery) {
		answers <- answer{code, found}
	})
	a := <-answers // also after Cancel: what is locked is delivered
	if a.code != fsm.OK {
		return p, nil, a.code
	}
	return p, a.found, nil
}

// goBack goes back to the messages that the client has returned.
func (r *Consumer) goBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard, n := range r.returned {
		if n != 0 {
			r.next[shard], r.returned[shard] = min(r.next[shard], n), 0
		}
	}
}

// Returned tells the Consumer that the client has settled messages: it looks again at those that become ready. It may
// be called from any goroutine.
func (r *Consumer) Returned(settlements []fsm.Settlement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range settlements {
		s := &settlements[i]
		if shard := s.Lock.Sequence.Shard(); shard < len(r.returned) && (s.Verb == fsm.Abandon || s.Verb == fsm.Release) {
			if r.returned[shard] == 0 || s.Lock.Sequence < r.returned[shard] {
				r.returned[shard] = s.Lock.Sequence
			}
		}
	}
}
