package client

import (
	"log/slog"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
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
	registered      registrations
	queuedReceivers []*Receiver  // those of them whose Lock must be sent
	touched         []fsm.Entity // from which messages were received since the last tick
	closes          keptCloses   // that the partition has not confirmed

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

// submission is one attempt to submit a request or a lock call.
type submission struct {
	request *request
	lock    *lockCall
	tag     uint64
	bytes   []byte
	probe   bool // of a lock: ask what an earlier submission has locked, and do not wait
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

// windowEntry is a request that has moved into the window.
type windowEntry struct {
	request *request
	header  fsm.Header
}

// advanceLow marks a request done, advances low, and numbers as many waiting requests as now fit into
// the window; the caller encodes them. A request that is done stays in the window until older ones are, without its bytes and its
// callback, which may refer to the messages of a batch. mu is held.
func (p *Client) advanceLow(q *request) (admitted []windowEntry) {
	q.state, q.bytes, q.done = requestDone, nil, nil // encode drops the command, which it may be reading
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

// hasQueued reports whether any request waits for a leader; mu is held.
func (p *Client) hasQueued() bool {
	for ; p.cursor < p.next; p.cursor++ {
		if (*p.windowSlot(p.cursor)).state == requestQueued {
			return true
		}
	}
	return len(p.queuedReceivers) > 0
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

// hasOutstanding reports whether any request or lock call waits for a leader or its answer; mu is held.
func (p *Client) hasOutstanding() bool { return p.low < p.next || len(p.receivers) > 0 }

// hasNoLeader reports whether requests wait because no leader is known.
func (p *Client) hasNoLeader() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leader == "" && p.low < p.next
}

// enqueue makes the next sendQueued send the call; the mutex of the client is held.
func (c *lockCall) enqueue() {
	c.state, c.stop = requestQueued, nil
	if !c.inQueue {
		c.inQueue = true
		c.receiver.client.queuedReceivers = append(c.receiver.client.queuedReceivers, c.receiver)
	}
}
