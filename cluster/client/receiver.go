package client

import (
	"math/rand/v2"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of one Lock.
const (
	LockMessagesMax = 4096    // messages, as in fsm
	LockBytesMax    = 8 << 20 // payloads, so that the answer fits into a frame; a single message may be larger
)

// lockGrace is how long after its wait time a Lock at a leader may stay unanswered
// before the router verifies that the leader still leads.
const lockGrace = time.Second

// Receiver locks messages of one sub-queue, or a session, under its own receiver id.
// At most one Lock is outstanding, so a retry after a change of leader gets
// the same messages again and none is lost between two leaders. Its methods are
// safe for concurrent use; none blocks.
type Receiver struct {
	client           *Client
	id               uint64
	at               fsm.EntityRef
	receiveAndDelete bool

	// Guarded by Client.mu.
	serial      uint64
	call        *lockCall       // outstanding; nil: none
	session     fsm.SessionLock // of a session receiver; set before the first Lock
	closed      bool
	registered  bool      // counted in Client.registered
	lastTouched time.Time // when its activity was last recorded
}

// lockCall is one outstanding Lock or AcceptSession. Its fields are guarded by Client.mu.
type lockCall struct {
	receiver    *Receiver
	bytes       []byte // encoded once, as in request
	lock        fsm.LockMessages
	accept      *fsm.AcceptSession // when set, submitted instead of lock
	header      fsm.Header
	until       time.Time
	done        func(fsm.Result)
	submissions uint64
	target      fsm.MemberID
	stop        func() // ends the wait at the leader; nil while it is not known
	state       requestState
	unknown     bool
	cancelled   bool
	inQueue     bool          // is in queuedReceivers
	pause       time.Duration // the last one of enqueueLater
	probe       bool          // the submission in flight asks what an earlier one has locked
}

// Lock locks up to most messages (1 to 4096) with payloads of at most mostBytes (8 MiB) in total, and waits until a time
// for the first; a single message may be larger. done is called once: with the locked messages, or with none when the time
// expired or Cancel was called, or with a Code other than OK (ServerBusy also for a second call while one is outstanding,
// and under the lock of a session when it stayed unknown for Timing.Retry what was locked: the receiver would get what
// comes behind it).
func (r *Receiver) Lock(most, mostBytes int, until time.Time, done func(fsm.Result)) {
	r.begin(&lockCall{
		until: until, done: done,
		lock: fsm.LockMessages{
			Address: r.at.Address(), Delete: r.receiveAndDelete, Session: r.session,
			Max:      uint32(max(1, min(most, LockMessagesMax))),
			MaxBytes: uint32(max(1, min(mostBytes, LockBytesMax))),
		},
	})
}

// Accept submits the command, and waits until a time for a session. done is called once, as by Lock; a result without a
// session means that the time expired or Cancel was called.
func (r *Receiver) Accept(command *fsm.AcceptSession, until time.Time, done func(fsm.Result)) {
	r.begin(&lockCall{accept: command, until: until, done: done})
}

// LockUnder makes the receiver lock messages of a session, under its lock. It is called before the first Lock.
func (r *Receiver) LockUnder(session fsm.SessionLock) { r.session = session }

// begin starts a call, or ends it with ServerBusy when the receiver is closed or has one.
func (r *Receiver) begin(call *lockCall) {
	call.receiver = r
	client := r.client
	client.mu.Lock()
	if client.closed || r.closed || r.call != nil {
		client.mu.Unlock()
		call.done(fsm.Result{Code: fsm.ServerBusy})
		return
	}
	r.serial++
	r.call = call
	client.markTouched(r, client.now())
	call.header = fsm.Header{Incarnation: client.incarnation, Receiver: r.id, Serial: r.serial, Low: r.serial}
	if call.accept != nil {
		call.bytes = fsm.AppendCommand(nil, call.header, *call.accept)
	} else {
		call.bytes = fsm.AppendCommand(nil, call.header, call.lock)
	}
	client.receivers[r] = struct{}{}
	if !r.register() {
		call.enqueueLater()
		client.mu.Unlock()
		return
	}
	call.enqueue()
	client.sendQueued()
}

// registeredMax is how many receivers of this member have an id in the partition, which remembers a few more
// (answers.ReceiversPerIncarnationMax).
const registeredMax = 60_000

// registrations counts the receivers that have an id in the partition, by entity.
type registrations struct {
	total    int
	entities map[fsm.EntityID]int
}

// register reports whether the receiver may have an id in the partition. The receivers of one entity may have as many as are
// free, so that one entity with very many receivers leaves some for the others. mu is held.
func (r *Receiver) register() bool {
	all := &r.client.registered
	switch {
	case r.registered:
		return true
	case all.entities[r.at.ID] >= registeredMax-all.total:
		return false
	case all.entities == nil:
		all.entities = make(map[fsm.EntityID]int)
	}
	r.registered = true
	all.total++
	all.entities[r.at.ID]++
	return true
}

// unregister reverts register, when the id is freed. mu is held.
func (r *Receiver) unregister() {
	if !r.registered {
		return
	}
	all := &r.client.registered
	r.registered = false
	all.total--
	if all.entities[r.at.ID]--; all.entities[r.at.ID] == 0 {
		delete(all.entities, r.at.ID)
	}
}

// Cancel ends the wait of an outstanding call soon. Its done function is still called, and may
// still get messages or a session.
func (r *Receiver) Cancel() {
	client := r.client
	client.mu.Lock()
	call := r.call
	if call == nil {
		client.mu.Unlock()
		return
	}
	call.cancelled = true
	stop, idle := call.stop, call.state == requestQueued && !call.unknown
	client.mu.Unlock()
	switch {
	case idle:
		call.finish(fsm.Result{})
	case stop != nil:
		stop()
	}
}

// Close cancels an outstanding call and frees the receiver id. Locks of messages stay as they are. It returns false when
// the receiver was closed already.
func (r *Receiver) Close() bool {
	client := r.client
	client.mu.Lock()
	first := !r.closed
	r.closed = true
	idle, used := r.call == nil, r.serial > 0
	if idle {
		r.unregister()
	}
	client.mu.Unlock()
	switch {
	case !first:
	case idle && used:
		client.closeReceiver(r.id)
	default:
		r.Cancel() // finish then frees the receiver id
	}
	return first
}

// HasLeader reports whether a leader of the partition is known.
func (r *Receiver) HasLeader() bool {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return r.client.leader != ""
}

// finish ends the call, unless it has ended; the mutex of the client is not held.
func (c *lockCall) finish(result fsm.Result) {
	r := c.receiver
	client := r.client
	client.mu.Lock()
	if c.state == requestDone {
		client.mu.Unlock()
		return
	}
	c.state = requestDone
	r.call = nil
	delete(client.receivers, r)
	closed := r.closed && !client.closed
	if r.closed {
		r.unregister()
	}
	progress := requestProgress{command: c.bytes, target: c.target, submissions: c.submissions}
	client.mu.Unlock()
	if client.slow.after > 0 {
		if late := time.Since(c.until); client.slow.isSlow(late) {
			client.slow.logLock(client.id, progress, result.Code, late)
		}
	}
	c.done(result)
	if closed {
		client.closeReceiver(r.id)
	}
}

// HandleAnswer handles the answer to one submission.
func (c *lockCall) HandleAnswer(tag uint64, answer partition.Answer, hint fsm.MemberID) {
	client := c.receiver.client
	client.mu.Lock()
	if c.state == requestDone {
		client.mu.Unlock()
		return
	}
	if answer.Outcome == partition.Done {
		client.refusals = 0
		hasNothing := len(answer.Result.Deliveries) == 0 && answer.Result.Session.Epoch == 0
		if hasNothing && tag != c.submissions {
			client.mu.Unlock() // an earlier leader has locked nothing, but a later one may, whose answer is due
			return
		}
		if hasNothing && answer.Result.Code == fsm.OK && c.probe && !c.cancelled && time.Now().Before(c.until) {
			c.unknown = false // the earlier submissions have locked nothing: wait again
			c.enqueue()
			client.sendQueued()
			return
		}
		client.mu.Unlock()
		c.finish(answer.Result)
		return
	}
	c.unknown = c.unknown || answer.Outcome == partition.Unknown
	if tag != c.submissions || c.state != requestSent {
		client.mu.Unlock()
		return
	}
	busy := answer.Outcome == partition.Refused && answer.Result.Code == fsm.ServerBusy
	if !busy { // too many receivers wait at the leader: it is still the leader for all other requests
		client.suspectLeader(c.target, hint)
	}
	if c.cancelled && !c.unknown {
		client.mu.Unlock()
		c.finish(fsm.Result{})
		return
	}
	if busy {
		c.enqueueLater()
		client.mu.Unlock()
		return
	}
	// After an unknown outcome even a cancelled Lock is submitted again: messages may be locked
	// for it, and the answer says which.
	c.enqueue()
	client.sendQueued()
}

// Pauses before a call is submitted again to a leader at which too many receivers wait.
const (
	busyPauseMin = time.Second
	busyPauseMax = 16 * time.Second
)

// enqueueLater enqueues the call after a pause, which is longer each time. Until then the call waits at this member. mu is held.
func (c *lockCall) enqueueLater() {
	client := c.receiver.client
	c.state, c.stop = requestQueued, nil
	c.pause = min(max(busyPauseMin, 2*c.pause), busyPauseMax)
	time.AfterFunc(c.pause+rand.N(c.pause/4), func() { //nolint:gosec // no secret
		client.mu.Lock()
		if c.state != requestQueued || c.inQueue || client.closed {
			client.mu.Unlock()
			return
		}
		if !c.receiver.register() {
			c.enqueueLater()
			client.mu.Unlock()
			return
		}
		c.enqueue()
		client.sendQueued()
	})
}

// giveUp ends an overdue call whose outcome may be unknown.
func (c *lockCall) giveUp() {
	client := c.receiver.client
	client.mu.Lock()
	isUnknown := c.unknown || c.state == requestSent
	client.mu.Unlock()
	var result fsm.Result
	if isUnknown && c.lock.Session.Epoch != 0 {
		result.Code = fsm.ServerBusy
	}
	c.finish(result)
}

// markTouched records the activity of a receiver for the next tick, at most once per
// ActivityEvery: the Lock may have ended by then. mu is held.
func (p *Client) markTouched(r *Receiver, now time.Time) {
	if now.Sub(r.lastTouched) < ActivityEvery || len(p.touched) >= ActivityEntitiesMax {
		return
	}
	r.lastTouched = now
	p.touched = append(p.touched, r.at.Entity)
}
