package client

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a partition client.
const (
	// outstandingMax bounds the serials between the oldest unanswered one and the newest: half of
	// the answers that a state machine remembers for one receiver id (fsm.answersOutstandingMax).
	outstandingMax       = 8192
	waitingRequestsMax   = 32768 // requests waiting for the window; further ones are answered with ServerBusy
	sendBatchMax         = 64    // submissions collected under one lock
	windowMin            = 64    // first size of a window, a power of two
	commandOverheadBytes = 64    // estimated size of a command without its messages
	messageOverheadBytes = 32    // estimated size of a message without its payload
)

// requestState is the progress of a request or a lock call.
type requestState uint8

const (
	requestQueued requestState = iota // sent when a leader is known
	requestSent                       // one submission is in flight
	requestDone                       // answered or abandoned
)

// request is one command of receiver id 0 that has not ended.
type request struct {
	client      *Client
	command     fsm.Command // nil once encoded
	bytes       []byte      // encoded once; every submission carries the same bytes
	done        func(fsm.Result)
	deadline    time.Time
	sentAt      time.Time
	target      fsm.MemberID
	serial      uint64
	submissions uint64 // number of the latest; a Done for an older one counts, too
	state       requestState
	unknown     bool // some submission may have reached the log
}

// HandleAnswer handles the answer to one submission.
func (q *request) HandleAnswer(tag uint64, answer partition.Answer, hint fsm.MemberID) {
	q.client.handleAnswer(q, tag, answer, hint)
}

// Client sends this member's commands to one partition, each exactly once. It numbers
// them (fsm.Header), keeps them until they are answered, and submits them, with the same
// bytes, to the leader of the partition, as often as needed.
//
//	waiting -> window [low, next) -> leader
//
// Invariants:
//   - low is the oldest serial in the window that is not done, or next;
//   - next-low <= outstandingMax, and waiting is empty unless the window is full;
//   - no request below cursor is queued.
//
// No lock is held while a replica or a connection is called, because those may answer
// before they return.
type Client struct {
	id          fsm.PartitionID
	incarnation uint64
	self        fsm.MemberID
	transport   Transport
	timing      Timing
	log         *slog.Logger
	now         func() time.Time // the clock of messages

	counts clientCounts
	slow   slowLogger

	mu      sync.Mutex
	window  []*request // ring, indexed by serial
	low     uint64
	next    uint64
	cursor  uint64
	waiting []*request

	receivers       map[*Receiver]struct{} // with an outstanding Lock
	queuedReceivers []*Receiver            // those of them whose Lock must be sent
	touched         []fsm.Entity           // from which messages were received since the last tick
	closes          keptCloses             // that the partition has not confirmed

	leader        fsm.MemberID     // empty: unknown
	term          uint64           // highest term in which a leader is known
	hint          fsm.MemberID     // member that may be the leader
	refusals      int              // consecutive
	leaderWaiters int              // callers of awaitLeader
	leaderKnown   notify.Broadcast // notified when a leader is found
	leaderNews    notify.Broadcast // notified by leaderChanged
	verifiedAt    time.Time        // when the leader was last verified

	sending bool // a goroutine is in sendQueued
	batch   []submission
	finding bool
	closed  bool
}

// Transport gives the router access to replicas.
type Transport interface {
	// LocalReplica returns this member's replica of the partition, or nil when it has none open.
	LocalReplica(id fsm.PartitionID) rpc.Group
	// Conn returns the connection to another member, or nil while closing.
	Conn(member fsm.MemberID) *rpc.Conn
	// LeaderCandidates returns the other live members that may hold replicas.
	LeaderCandidates(id fsm.PartitionID) []fsm.MemberID
	// Changes returns a channel that is closed when leaders or members have changed.
	Changes() <-chan struct{}
	// Go runs a goroutine that Close waits for; ctx ends with the router. It returns false while closing.
	Go(func(ctx context.Context)) bool
}

// submission is one attempt to submit a request or a lock call.
type submission struct {
	request *request
	lock    *lockCall
	tag     uint64
	bytes   []byte
	probe   bool // of a lock: ask what an earlier submission has locked, and do not wait
}

func newClient(id fsm.PartitionID, c *Config) *Client {
	return &Client{
		id: id, incarnation: c.Incarnation, self: c.Self, transport: c.Transport, timing: c.Timing, log: c.Logger, now: c.Now,
		slow:   slowLogger{c.Slow, c.SlowAfter},
		window: make([]*request, windowMin),
		low:    1, next: 1, cursor: 1,
		receivers: make(map[*Receiver]struct{}),
	}
}

// Submit sends a command and calls done exactly once: with its result, or with ServerBusy
// (certainly not applied) or Timeout (possibly applied) when Timing.Retry has passed. It does
// not block; done may be called before it returns.
func (p *Client) Submit(command fsm.Command, done func(fsm.Result)) {
	if code := fsm.Check(command); code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	if !p.canWrite(fsm.LevelOf(command)) {
		done(fsm.Result{Code: p.belowLevel()})
		return
	}
	q := &request{client: p, command: command, done: done, deadline: time.Now().Add(p.timing.Retry)}
	p.counts.requests.Add(1)
	p.mu.Lock()
	if p.closed || len(p.waiting) >= waitingRequestsMax {
		p.mu.Unlock()
		p.counts.busy.Add(1)
		done(fsm.Result{Code: fsm.ServerBusy})
		return
	}
	if len(p.waiting) > 0 || p.next-p.low >= outstandingMax {
		p.waiting = append(p.waiting, q)
		p.mu.Unlock()
		return
	}
	header := p.assignSerial(q)
	p.mu.Unlock()
	p.encode(q, header)
}

// assignSerial puts a request into the window, which grows as needed; mu is held.
func (p *Client) assignSerial(q *request) fsm.Header {
	if p.next-p.low == uint64(len(p.window)) {
		grown := make([]*request, 2*len(p.window))
		for serial := p.low; serial < p.next; serial++ {
			grown[serial%uint64(len(grown))] = *p.windowSlot(serial)
		}
		p.window = grown
	}
	q.serial = p.next
	p.next++
	*p.windowSlot(q.serial) = q
	return fsm.Header{Incarnation: p.incarnation, Serial: q.serial, Low: p.low}
}

func (p *Client) windowSlot(serial uint64) **request {
	return &p.window[serial%uint64(len(p.window))]
}

// encode encodes a numbered request and sends it. It encodes without the lock: sendQueued waits for this
// request before it sends later ones, and others are numbered meanwhile.
func (p *Client) encode(q *request, header fsm.Header) {
	bytes := fsm.AppendCommand(make([]byte, 0, commandSize(q.command)), header, q.command)
	p.mu.Lock()
	q.command = nil
	if len(bytes) > rpc.FrameBytesMax-rpc.FrameHeaderBytes-8 {
		p.finish(q, fsm.Result{Code: fsm.MessageTooLarge})
		return
	}
	q.bytes = bytes
	p.sendQueued()
}

// commandSize estimates the size of a command, so that encoding allocates once.
func commandSize(command fsm.Command) int {
	size := commandOverheadBytes
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
			size += commandOverheadBytes + len(c.Transfers[i].Name) + messagesSize(c.Transfers[i].Messages)
		}
	case fsm.TransferMessages:
		for i := range c.Messages {
			m := &c.Messages[i]
			size += messageOverheadBytes + len(m.ID) + len(m.Payload) + len(m.Properties) + len(m.Patches)
		}
	case fsm.SettleMessages:
		for i := range c.Settlements {
			size += messageOverheadBytes
			if s := &c.Settlements[i]; i == 0 || !s.SameOutcome(&c.Settlements[i-1]) {
				size += len(s.Reason) + len(s.Description) + len(s.Properties)
			}
		}
	case fsm.SetSessionState:
		size += len(c.State)
	case fsm.RenewLocks:
		size += messageOverheadBytes * len(c.Locks)
	case fsm.FetchDeferred:
		size += messageOverheadBytes * len(c.Sequences)
	case fsm.FetchReady:
		size += messageOverheadBytes * len(c.Seen)
	case fsm.CancelScheduled:
		size += messageOverheadBytes * len(c.Sequences)
	case fsm.RedriveMessages:
		size += messageOverheadBytes * len(c.Sequences)
	}
	return size
}

func messagesSize(messages []fsm.Message) (size int) {
	for i := range messages {
		m := &messages[i]
		size += messageOverheadBytes + len(m.ID) + len(m.Payload) + len(m.Properties) + len(m.Session)
	}
	return size
}

// finish ends a request, unless it has ended; mu is held and is released.
func (p *Client) finish(q *request, result fsm.Result) {
	if q.state == requestDone {
		p.mu.Unlock()
		return
	}
	progress := requestProgress{q.bytes, q.sentAt, q.target, q.submissions}
	admitted := p.advanceLow(q)
	p.mu.Unlock()
	if took := p.counts.count(q, result.Code, p.timing.Retry); p.slow.isSlow(took) {
		p.slow.logRequest(p.id, progress, result.Code, took)
	}
	for _, n := range admitted {
		p.encode(n.request, n.header)
	}
	q.done(result)
}

// windowEntry is a request that has moved into the window.
type windowEntry struct {
	request *request
	header  fsm.Header
}

// advanceLow marks a request done, advances low, and numbers as many waiting requests as now fit into
// the window; the caller encodes them. mu is held.
func (p *Client) advanceLow(q *request) (admitted []windowEntry) {
	q.state, q.bytes = requestDone, nil
	for p.low < p.next && (*p.windowSlot(p.low)).state == requestDone {
		*p.windowSlot(p.low) = nil
		p.low++
	}
	p.cursor = max(p.cursor, p.low)
	for len(p.waiting) > 0 && p.next-p.low < outstandingMax {
		next := p.waiting[0]
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		admitted = append(admitted, windowEntry{next, p.assignSerial(next)})
	}
	if len(p.waiting) == 0 {
		p.waiting = nil
	}
	return admitted
}

// sendQueued sends the queued requests. mu is held and is released. One goroutine at a time sends;
// the requests of others that call meanwhile are sent by the first.
func (p *Client) sendQueued() {
	if p.sending {
		p.mu.Unlock()
		return
	}
	p.sending = true
	for {
		target := p.leader
		if !p.collectBatch() {
			break
		}
		batch := p.batch
		p.mu.Unlock()
		for i := range batch {
			p.send(target, &batch[i])
			batch[i] = submission{}
		}
		p.mu.Lock()
	}
	p.sending = false
	p.mu.Unlock()
}

// collectBatch fills batch with submissions for the leader. It returns false when there is nothing to
// send, or when no leader is known; then it starts the search for one. mu is held.
func (p *Client) collectBatch() bool {
	p.batch = p.batch[:0]
	if p.leader == "" {
		if p.hasQueued() {
			p.findLeader()
		}
		return false
	}
	now := time.Now()
	for ; p.cursor < p.next && len(p.batch) < sendBatchMax; p.cursor++ {
		q := *p.windowSlot(p.cursor)
		if q.state != requestQueued {
			continue
		}
		if q.bytes == nil {
			break // still being encoded; later ones must not overtake it
		}
		q.state, q.target, q.sentAt = requestSent, p.leader, now
		if q.submissions++; q.submissions > 1 {
			p.counts.retries.Add(1)
		}
		p.batch = append(p.batch, submission{request: q, tag: q.submissions, bytes: q.bytes})
	}
	return p.collectReceivers() || len(p.batch) > 0
}

// hasQueued reports whether any request waits for a leader; mu is held.
func (p *Client) hasQueued() bool {
	for ; p.cursor < p.next; p.cursor++ {
		if (*p.windowSlot(p.cursor)).state == requestQueued {
			return true
		}
	}
	return len(p.queuedReceivers) > 0
}

// send starts one submission; mu is not held.
func (p *Client) send(target fsm.MemberID, a *submission) {
	if a.lock != nil {
		p.sendLock(target, a)
		return
	}
	p.submitTo(target, a.bytes, a.request, a.tag)
}

// submitTo submits an encoded command to the presumed leader; mu is not held.
func (p *Client) submitTo(target fsm.MemberID, command []byte, handler rpc.AnswerHandler, tag uint64) {
	if target != p.self {
		if conn := p.transport.Conn(target); conn != nil {
			conn.Submit(p.id, command, handler, tag)
			return
		}
	} else if group := p.transport.LocalReplica(p.id); group != nil {
		group.Submit(command, func(answer partition.Answer) {
			handler.HandleAnswer(tag, answer, leaderHint(group, answer))
		})
		return
	}
	handler.HandleAnswer(tag, partition.Answer{Outcome: partition.Refused}, "")
}

// leaderHint returns the presumed leader according to a replica that refused.
func leaderHint(group rpc.Group, answer partition.Answer) fsm.MemberID {
	if answer.Outcome != partition.Refused {
		return ""
	}
	return group.Status().Leader
}

// handleAnswer handles the answer to one submission.
func (p *Client) handleAnswer(q *request, tag uint64, answer partition.Answer, hint fsm.MemberID) {
	p.mu.Lock()
	if q.state == requestDone {
		p.mu.Unlock()
		return
	}
	if answer.Outcome == partition.Done {
		p.refusals = 0
		p.finish(q, answer.Result)
		return
	}
	q.unknown = q.unknown || answer.Outcome == partition.Unknown
	if tag != q.submissions {
		p.mu.Unlock()
		return // a later submission is in flight
	}
	if answer.Final && !q.unknown { // a full disk: another submission would not change that
		p.finish(q, fsm.Result{Code: fsm.ServerBusy})
		return
	}
	q.state = requestQueued
	p.cursor = min(p.cursor, q.serial)
	p.suspectLeader(q.target, hint)
	p.sendQueued()
}

// suspectLeader forgets a leader that refused or did not answer; mu is held.
func (p *Client) suspectLeader(target, hint fsm.MemberID) {
	if hint != "" && hint != target {
		p.hint = hint
	}
	if p.leader == target {
		p.leader = ""
		p.refusals++
	}
}

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

// finishUnanswered ends a request: with ServerBusy if it was certainly not applied, with Timeout otherwise.
func (p *Client) finishUnanswered(q *request) {
	p.mu.Lock()
	code := fsm.ServerBusy
	if q.unknown || q.state == requestSent {
		code = fsm.Timeout
	}
	p.finish(q, fsm.Result{Code: code})
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
