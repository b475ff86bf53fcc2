package cluster

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// lockBytesMax bounds the payloads of one Lock, so that its answer fits a frame; a
// single message may be larger.
const lockBytesMax = 8 << 20

// lockGrace is how long past its time a Lock that waits at a leader may stay unanswered
// before the leader is asked whether it still leads.
const lockGrace = time.Second

// Receiver is the source of one receiving link: a lane of its own to the partition of
// one address. At most one Lock is outstanding, so a retry after a change of leader gets
// the same messages again and none is lost between two leaders. Its methods may be
// called concurrently; none blocks.
type Receiver struct {
	fan *fanIn // of a partitioned entity; then there is nothing else

	router *Router
	line   *line
	lane   uint64
	at     fsm.Place
	takes  bool
	bits   fsm.SequenceNumber // that the numbers of this shard have outside

	// Guarded by line.mu.
	serial  uint64
	call    *lockCall       // under way
	session fsm.SessionLock // that is held; set before the first Lock
	closed  bool
	active  time.Time // when the router last heard that this receiver is there
}

// lockCall is one Lock on its way. Its fields are guarded by line.mu.
type lockCall struct {
	receiver  *Receiver
	bytes     []byte // encoded once, as in request
	lock      fsm.LockMessages
	accept    *fsm.AcceptSession // asked instead of lock, where it is not nil
	header    fsm.Header
	until     time.Time
	done      func(fsm.Result)
	attempt   uint64
	target    fsm.MemberID
	stop      func() // ends the waiting at the leader; nil before it is known
	state     requestState
	unknown   bool
	cancelled bool
	pending   bool // is in queuedLanes
	probing   bool // the attempt under way asks what became of an earlier one
}

// Lock asks for up to max messages of together at most maxBytes and waits up to wait
// for the first. done gets what was locked, or nothing when the time ran out or Cancel
// came. A Code other than OK means that the entity cannot be received from any more
// (EntityNotFound) or not now (ServerBusy).
func (r *Receiver) Lock(max, maxBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	if r.fan != nil {
		r.fan.lock(max, maxBytes, wait, done)
		return
	}
	r.start(max, maxBytes, time.Now().Add(min(wait, lockWaitMax)), func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			done(result.Code, outside(r.bits, result.Deliveries))
			return
		}
		// The catalog may know the queue although its making was interrupted before
		// the partition heard of it.
		r.router.heal(r.at.Entity, func(healed bool) {
			if !healed {
				done(fsm.EntityNotFound, nil)
				return
			}
			r.start(max, maxBytes, time.Now(), func(result fsm.Result) {
				done(result.Code, outside(r.bits, result.Deliveries))
			})
		})
	})
}

func (r *Receiver) start(max, maxBytes int, until time.Time, done func(fsm.Result)) {
	r.begin(&lockCall{
		until: until, done: done,
		lock: fsm.LockMessages{
			Address: r.at.Address(), Delete: r.takes, Session: r.session,
			Max:      uint32(clamp(max, 1, lockMessagesMax)),
			MaxBytes: uint32(clamp(maxBytes, 1, lockBytesMax)),
		},
	})
}

// begin starts a call.
func (r *Receiver) begin(call *lockCall) {
	call.receiver = r
	l := r.line
	l.mu.Lock()
	if l.closed || r.closed || r.call != nil {
		l.mu.Unlock()
		call.done(fsm.Result{Code: fsm.ServerBusy})
		return
	}
	r.serial++
	r.call = call
	l.stir(r, l.now())
	call.header = fsm.Header{Origin: l.origin, Lane: r.lane, Serial: r.serial, Low: r.serial}
	if call.accept != nil {
		call.bytes = fsm.AppendCommand(nil, call.header, *call.accept)
	} else {
		call.bytes = fsm.AppendCommand(nil, call.header, call.lock)
	}
	l.lanes[r] = struct{}{}
	call.enqueue()
	l.pump()
}

// Cancel ends the waiting of an outstanding Lock soon; done is still called, and may
// still bring messages.
func (r *Receiver) Cancel() {
	if r.fan != nil {
		r.fan.cancel()
		return
	}
	l := r.line
	l.mu.Lock()
	call := r.call
	if call == nil {
		l.mu.Unlock()
		return
	}
	call.cancelled = true
	stop, idle := call.stop, call.state == queued && !call.unknown
	l.mu.Unlock()
	switch {
	case idle:
		call.finish(fsm.Result{})
	case stop != nil:
		stop()
	}
}

// Close cancels and frees the lane. Locks already granted stay as they are.
func (r *Receiver) Close() {
	if r.fan != nil {
		r.fan.close()
		return
	}
	l := r.line
	l.mu.Lock()
	first := !r.closed
	r.closed = true
	idle, used := r.call == nil, r.serial > 0
	l.mu.Unlock()
	switch {
	case !first:
	case idle && used:
		r.free()
	default:
		r.Cancel() // and finish frees the lane
	}
}

// free lets the machine forget the lane. Should it not arrive, the machine forgets the
// lane with this member.
func (r *Receiver) free() {
	r.line.submit(fsm.CloseLane{Origin: r.line.origin, Lane: r.lane}, func(fsm.Result) {})
}

// enqueue has the call sent by the next pump; line.mu is held.
func (c *lockCall) enqueue() {
	c.state, c.stop = queued, nil
	if !c.pending {
		c.pending = true
		c.receiver.line.queuedLanes = append(c.receiver.line.queuedLanes, c.receiver)
	}
}

// finish ends the call; line.mu is not held.
func (c *lockCall) finish(result fsm.Result) {
	r := c.receiver
	l := r.line
	l.mu.Lock()
	if c.state == ended {
		l.mu.Unlock()
		return
	}
	c.state = ended
	r.call = nil
	delete(l.lanes, r)
	closed := r.closed && !l.closed
	was := progress{command: c.bytes, target: c.target, attempts: c.attempt}
	l.mu.Unlock()
	if l.slow.after > 0 {
		if late := time.Since(c.until); l.slow.is(late) {
			l.slow.lock(l.id, was, result.Code, late)
		}
	}
	c.done(result)
	if closed {
		r.free()
	}
}

// answered is called at the end of an attempt.
func (c *lockCall) answered(tag uint64, answer partition.Answer, hint fsm.MemberID) {
	l := c.receiver.line
	l.mu.Lock()
	if c.state == ended {
		l.mu.Unlock()
		return
	}
	if answer.Outcome == partition.Done {
		l.refusals = 0
		empty := answer.Result.Code == fsm.OK && len(answer.Result.Deliveries) == 0 && answer.Result.Session.Epoch == 0
		if empty && c.probing && tag == c.attempt && !c.cancelled && time.Now().Before(c.until) {
			c.unknown = false // nothing came of the earlier attempts: wait in line again
			c.enqueue()
			l.pump()
			return
		}
		l.mu.Unlock()
		c.finish(answer.Result)
		return
	}
	c.unknown = c.unknown || answer.Outcome == partition.Unknown
	if tag != c.attempt || c.state != sent {
		l.mu.Unlock()
		return
	}
	l.distrust(c.target, hint)
	if c.cancelled && !c.unknown {
		l.mu.Unlock()
		c.finish(fsm.Result{})
		return
	}
	// With an unknown attempt behind it even a cancelled Lock is asked again: messages
	// may be locked for it, and the answer says which.
	c.enqueue()
	l.pump()
}

// collectLanes adds the queued lock calls to the batch; mu is held.
func (l *line) collectLanes() bool {
	for len(l.queuedLanes) > 0 && len(l.batch) < sendBatchMax {
		receiver := l.queuedLanes[0]
		l.queuedLanes[0] = nil
		l.queuedLanes = l.queuedLanes[1:]
		call := receiver.call
		if call == nil {
			continue // ended while it was queued
		}
		call.pending = false
		if call.state != queued {
			continue
		}
		call.state, call.target, call.probing = sent, l.leader, call.unknown
		call.attempt++
		l.batch = append(l.batch, attempt{lock: call, tag: call.attempt, bytes: call.bytes, probe: call.probing})
	}
	if len(l.queuedLanes) == 0 {
		l.queuedLanes = nil
	}
	return len(l.batch) > 0
}

// sendLock starts one attempt; mu is not held. After an unknown outcome the command is
// submitted like any other instead of waiting in line: messages may be locked for it
// already, and the machine says so only when it is asked.
func (l *line) sendLock(target fsm.MemberID, a *attempt) {
	call, tag := a.lock, a.tag
	if a.probe {
		l.submitTo(target, a.bytes, call, tag)
		return
	}
	var stop func()
	if target != l.self {
		conn := l.ways.conn(target)
		if conn == nil {
			call.answered(tag, partition.Answer{Outcome: partition.Refused}, "")
			return
		}
		id := conn.lock(l.id, time.Until(call.until), a.bytes, call, tag)
		stop = func() { conn.cancel(id) }
	} else {
		group := l.ways.local(l.id)
		if group == nil {
			call.answered(tag, partition.Answer{Outcome: partition.Refused}, "")
			return
		}
		stop = group.Lock(partition.LockRequest{
			Header: call.header, Lock: call.lock, Accept: call.accept, Until: call.until,
			Done: func(answer partition.Answer) {
				call.answered(tag, answer, leaderHint(group, answer))
			},
		})
	}
	l.mu.Lock()
	waits := call.state == sent && call.attempt == tag
	if waits {
		call.stop = stop
	}
	cancelled := call.cancelled
	l.mu.Unlock()
	if !waits || cancelled {
		stop() // ended, sent elsewhere or cancelled meanwhile
	}
}

// tickLanes returns the calls to give up, and whether some call has waited for so
// long that its leader is in doubt; mu is held.
func (l *line) tickLanes(now time.Time) (givenUp []*lockCall, slow bool) {
	for receiver := range l.lanes {
		call := receiver.call
		late := now.Sub(call.until)
		switch {
		case late <= 0:
		case call.state == queued && !call.unknown, late > l.timing.Retry:
			givenUp = append(givenUp, call)
		case late > lockGrace:
			slow = true
		}
	}
	return givenUp, slow
}

func clamp(value, low, high int) int { return max(low, min(value, high)) }
