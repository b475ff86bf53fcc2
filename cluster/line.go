package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a line.
const (
	// outstandingMax bounds the serials between the oldest unanswered one and the newest:
	// half of the answers that a machine remembers for one lane (fsm.answersOutstandingMax).
	outstandingMax = 8192
	waitingMax     = 32768 // requests behind the window; more are answered ServerBusy
	sendBatchMax   = 64    // requests taken under one lock
	windowMin      = 64    // first size of a window, a power of two
	commandHead    = 64    // bytes of a command that are not messages, roughly
	messageHead    = 32    // bytes of a message that are not its payload, roughly
)

// requestState is where a request stands.
type requestState uint8

const (
	queued requestState = iota // to be sent when a leader is known
	sent                       // one attempt is on its way
	ended                      // answered or given up
)

// request is one command of lane 0 on its way.
type request struct {
	line     *line
	command  fsm.Command // nil once encoded
	bytes    []byte      // encoded once; every attempt carries the same bytes
	done     func(fsm.Result)
	deadline time.Time
	sentAt   time.Time
	target   fsm.MemberID
	serial   uint64
	attempt  uint64 // of the attempt that counts; a Done of an older one counts too
	state    requestState
	unknown  bool // some attempt may have come into the log
}

// answered is called at the end of an attempt.
func (q *request) answered(tag uint64, answer partition.Answer, hint fsm.MemberID) {
	q.line.onAnswer(q, tag, answer, hint)
}

// line brings this member's commands to one partition, exactly once each. It numbers
// them (fsm.Header), keeps them until they are answered, and sends them, with the same
// bytes, to whoever leads the partition, again and again if need be.
//
//	waiting -> window [low, next) -> leader
//
// Invariants:
//   - low is the oldest serial in the window that has not ended, or next;
//   - next-low <= outstandingMax, and waiting is empty unless the window is full;
//   - no request below cursor is queued.
//
// No lock is held while a group or a connection is called, because those may answer
// before they return.
type line struct {
	id     fsm.PartitionID
	origin uint64
	self   fsm.MemberID
	ways   ways
	timing Timing
	log    *slog.Logger
	now    func() time.Time // the clock that messages live by

	counts lineCounts
	slow   slowness

	mu      sync.Mutex
	window  []*request // ring, indexed by serial
	low     uint64
	next    uint64
	cursor  uint64
	waiting []*request

	lanes       map[*Receiver]struct{} // with a Lock under way
	queuedLanes []*Receiver            // of these, the ones to be sent
	stirred     []fsm.Entity           // received from since the last tick

	leader   fsm.MemberID     // empty: to be sought
	term     uint64           // highest in which a leader was found
	hint     fsm.MemberID     // who may be the leader
	refusals int              // in a row
	wanted   int              // callers of awaitLeader
	known    notify.Broadcast // rings when a leader is found
	checked  time.Time        // when the leader was last verified

	sending bool // a goroutine is in pump
	batch   []attempt
	seeking bool
	closed  bool
}

// ways is how a line reaches replicas.
type ways interface {
	// local returns this member's replica of the partition, nil when it has none open.
	local(id fsm.PartitionID) replica
	// conn returns the connection to another member, nil while closing.
	conn(member fsm.MemberID) *forwardConn
	// replicas returns the other members that may hold replicas and are alive.
	replicas(id fsm.PartitionID) []fsm.MemberID
	// changes rings when leaders or members have changed.
	changes() <-chan struct{}
	// work runs a goroutine that Close waits for; ctx ends with the router. False: closing.
	work(func(ctx context.Context)) bool
}

// attempt is one sending of a request or of a lock call.
type attempt struct {
	request *request
	lock    *lockCall
	tag     uint64
	bytes   []byte
	probe   bool // of a lock: do not wait
}

func newLine(id fsm.PartitionID, origin uint64, self fsm.MemberID, w ways, timing Timing, log *slog.Logger) *line {
	return &line{
		id: id, origin: origin, self: self, ways: w, timing: timing, log: log, now: time.Now,
		window: make([]*request, windowMin),
		low:    1, next: 1, cursor: 1,
		lanes: make(map[*Receiver]struct{}),
	}
}

// submit sends a command and calls done with its result, or with ServerBusy or Timeout
// when it was given up. It does not block; done may be called before it returns.
func (l *line) submit(command fsm.Command, done func(fsm.Result)) {
	if code := fsm.Check(command); code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	q := &request{line: l, command: command, done: done, deadline: time.Now().Add(l.timing.Retry)}
	l.counts.requests.Add(1)
	l.mu.Lock()
	if l.closed || len(l.waiting) >= waitingMax {
		l.mu.Unlock()
		l.counts.busy.Add(1)
		done(fsm.Result{Code: fsm.ServerBusy})
		return
	}
	if len(l.waiting) > 0 || l.next-l.low >= outstandingMax {
		l.waiting = append(l.waiting, q)
		l.mu.Unlock()
		return
	}
	header := l.number(q)
	l.mu.Unlock()
	l.encode(q, header)
}

// number puts a request into the window; mu is held.
func (l *line) number(q *request) fsm.Header {
	if l.next-l.low == uint64(len(l.window)) {
		grown := make([]*request, 2*len(l.window))
		for serial := l.low; serial < l.next; serial++ {
			grown[serial%uint64(len(grown))] = *l.slot(serial)
		}
		l.window = grown
	}
	q.serial = l.next
	l.next++
	*l.slot(q.serial) = q
	return fsm.Header{Origin: l.origin, Serial: q.serial, Low: l.low}
}

func (l *line) slot(serial uint64) **request { return &l.window[serial%uint64(len(l.window))] }

// encode gives a numbered request its bytes and sends it. The encoding is done without
// the lock: requests behind this one wait for it in pump, others are numbered meanwhile.
func (l *line) encode(q *request, header fsm.Header) {
	bytes := fsm.AppendCommand(make([]byte, 0, commandSize(q.command)), header, q.command)
	l.mu.Lock()
	q.command = nil
	if len(bytes) > frameBytesMax-frameHeaderBytes-8 {
		l.finish(q, fsm.Result{Code: fsm.MessageTooLarge})
		return
	}
	q.bytes = bytes
	l.pump()
}

// commandSize guesses the size of a command, so that encoding allocates once.
func commandSize(command fsm.Command) int {
	size := commandHead
	switch c := command.(type) {
	case fsm.SendMessages:
		size += messagesSize(c.Messages)
	case fsm.Transact:
		for i := range c.Settles {
			size += commandSize(c.Settles[i])
		}
		for i := range c.Sends {
			size += commandSize(c.Sends[i])
		}
		for i := range c.Transfers {
			size += commandHead + len(c.Transfers[i].Name) + messagesSize(c.Transfers[i].Messages)
		}
	case fsm.TransferMessages:
		for i := range c.Messages {
			m := &c.Messages[i]
			size += messageHead + len(m.ID) + len(m.Payload) + len(m.Properties) + len(m.Patches)
		}
	case fsm.SettleMessages:
		for i := range c.Settlements {
			s := &c.Settlements[i]
			size += messageHead + len(s.Reason) + len(s.Description) + len(s.Properties)
		}
	case fsm.SetSessionState:
		size += len(c.State)
	case fsm.RenewLocks:
		size += messageHead * len(c.Locks)
	case fsm.FetchDeferred:
		size += messageHead * len(c.Sequences)
	case fsm.CancelScheduled:
		size += messageHead * len(c.Sequences)
	case fsm.RedriveMessages:
		size += messageHead * len(c.Sequences)
	}
	return size
}

func messagesSize(messages []fsm.Message) (size int) {
	for i := range messages {
		m := &messages[i]
		size += messageHead + len(m.ID) + len(m.Payload) + len(m.Properties) + len(m.Session)
	}
	return size
}

// finish ends a request; mu is held and is released.
func (l *line) finish(q *request, result fsm.Result) {
	if q.state == ended {
		l.mu.Unlock()
		return
	}
	was := progress{q.bytes, q.sentAt, q.target, q.attempt}
	fresh := l.retire(q)
	l.mu.Unlock()
	if took := l.counts.count(q, result.Code, l.timing.Retry); l.slow.is(took) {
		l.slow.request(l.id, was, result.Code, took)
	}
	for _, n := range fresh {
		l.encode(n.request, n.header)
	}
	q.done(result)
}

// numbered is a request that has moved up into the window.
type numbered struct {
	request *request
	header  fsm.Header
}

// retire marks a request ended, moves low on, and numbers waiting requests for the room
// that this makes; the caller encodes them. mu is held.
func (l *line) retire(q *request) (fresh []numbered) {
	q.state, q.bytes = ended, nil
	for l.low < l.next && (*l.slot(l.low)).state == ended {
		*l.slot(l.low) = nil
		l.low++
	}
	l.cursor = max(l.cursor, l.low)
	for len(l.waiting) > 0 && l.next-l.low < outstandingMax {
		next := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		fresh = append(fresh, numbered{next, l.number(next)})
	}
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	return fresh
}

// pump sends what is queued. mu is held and is released. One goroutine at a time sends;
// another that comes meanwhile leaves its requests to the first.
func (l *line) pump() {
	if l.sending {
		l.mu.Unlock()
		return
	}
	l.sending = true
	for {
		target := l.leader
		if !l.collect() {
			break
		}
		batch := l.batch
		l.mu.Unlock()
		for i := range batch {
			l.send(target, &batch[i])
			batch[i] = attempt{}
		}
		l.mu.Lock()
	}
	l.sending = false
	l.mu.Unlock()
}

// collect fills batch with attempts for the leader; false: there is nothing to send,
// or nobody to send it to, who is then sought. mu is held.
func (l *line) collect() bool {
	l.batch = l.batch[:0]
	if l.leader == "" {
		if l.hasQueued() {
			l.seek()
		}
		return false
	}
	now := time.Now()
	for ; l.cursor < l.next && len(l.batch) < sendBatchMax; l.cursor++ {
		q := *l.slot(l.cursor)
		if q.state != queued {
			continue
		}
		if q.bytes == nil {
			break // being encoded: its turn comes first
		}
		q.state, q.target, q.sentAt = sent, l.leader, now
		if q.attempt++; q.attempt > 1 {
			l.counts.retries.Add(1)
		}
		l.batch = append(l.batch, attempt{request: q, tag: q.attempt, bytes: q.bytes})
	}
	return l.collectLanes() || len(l.batch) > 0
}

// hasQueued says whether something waits for a leader; mu is held.
func (l *line) hasQueued() bool {
	for ; l.cursor < l.next; l.cursor++ {
		if (*l.slot(l.cursor)).state == queued {
			return true
		}
	}
	return len(l.queuedLanes) > 0
}

// send starts one attempt; mu is not held.
func (l *line) send(target fsm.MemberID, a *attempt) {
	if a.lock != nil {
		l.sendLock(target, a)
		return
	}
	l.submitTo(target, a.bytes, a.request, a.tag)
}

// submitTo submits an encoded command to whoever is held for the leader; mu is not held.
func (l *line) submitTo(target fsm.MemberID, command []byte, asker answerer, tag uint64) {
	if target != l.self {
		if conn := l.ways.conn(target); conn != nil {
			conn.submit(l.id, command, asker, tag)
			return
		}
	} else if group := l.ways.local(l.id); group != nil {
		group.Submit(command, func(answer partition.Answer) {
			asker.answered(tag, answer, leaderHint(group, answer))
		})
		return
	}
	asker.answered(tag, partition.Answer{Outcome: partition.Refused}, "")
}

// leaderHint is who a group that refused holds for the leader.
func leaderHint(group replica, answer partition.Answer) fsm.MemberID {
	if answer.Outcome != partition.Refused {
		return ""
	}
	return group.Status().Leader
}

// onAnswer takes the end of one attempt.
func (l *line) onAnswer(q *request, tag uint64, answer partition.Answer, hint fsm.MemberID) {
	l.mu.Lock()
	if q.state == ended {
		l.mu.Unlock()
		return
	}
	if answer.Outcome == partition.Done {
		l.refusals = 0
		l.finish(q, answer.Result)
		return
	}
	q.unknown = q.unknown || answer.Outcome == partition.Unknown
	if tag != q.attempt {
		l.mu.Unlock()
		return // a later attempt is on its way
	}
	if answer.Firm && !q.unknown { // the disks are full: the leader is the right one
		l.finish(q, fsm.Result{Code: fsm.ServerBusy})
		return
	}
	q.state = queued
	l.cursor = min(l.cursor, q.serial)
	l.distrust(q.target, hint)
	l.pump()
}

// distrust forgets a leader that did not do what was asked; mu is held.
func (l *line) distrust(target, hint fsm.MemberID) {
	if hint != "" && hint != target {
		l.hint = hint
	}
	if l.leader == target {
		l.leader = ""
		l.refusals++
	}
}

// tick gives up what is overdue, and has the leader verified when it is slow. It is
// called a few times a second.
func (l *line) tick(now time.Time) {
	l.mu.Lock()
	var overdue []*request
	for serial := l.low; serial < l.next; serial++ {
		q := *l.slot(serial)
		if q.state == ended {
			continue
		}
		if now.Before(q.deadline) {
			break // deadlines rise with serials
		}
		overdue = append(overdue, q)
	}
	for len(l.waiting) > 0 && !now.Before(l.waiting[0].deadline) {
		q := l.waiting[0]
		q.state = ended
		l.waiting = l.waiting[1:]
		l.counts.busy.Add(1)
		defer q.done(fsm.Result{Code: fsm.ServerBusy})
	}
	slow := l.low < l.next && (*l.slot(l.low)).state == sent && now.Sub((*l.slot(l.low)).sentAt) > l.timing.Suspect
	givenUp, slowLanes := l.tickLanes(now)
	if (slow || slowLanes) && now.Sub(l.checked) > l.timing.Suspect {
		l.checked = now
		l.verify()
	}
	l.mu.Unlock()
	for _, q := range overdue {
		code := fsm.ServerBusy // certainly not done
		l.mu.Lock()
		if q.unknown || q.state == sent {
			code = fsm.Timeout // it may have been done
		}
		l.finish(q, fsm.Result{Code: code})
	}
	for _, call := range givenUp {
		call.finish(fsm.Result{})
	}
}

// close ends everything with ServerBusy.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	var open []*request
	for serial := l.low; serial < l.next; serial++ {
		if q := *l.slot(serial); q.state != ended {
			open = append(open, q)
		}
	}
	waiting := l.waiting
	l.waiting = nil
	calls := make([]*lockCall, 0, len(l.lanes))
	for receiver := range l.lanes {
		calls = append(calls, receiver.call)
	}
	l.mu.Unlock()
	for _, q := range open {
		l.mu.Lock()
		l.finish(q, fsm.Result{Code: fsm.ServerBusy})
	}
	for _, q := range waiting {
		q.done(fsm.Result{Code: fsm.ServerBusy})
	}
	for _, call := range calls {
		call.finish(fsm.Result{Code: fsm.ServerBusy})
	}
	l.known.Notify()
}
