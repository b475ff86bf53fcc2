package client

import (
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// HandleAnswer handles the answer to one submission.
func (q *request) HandleAnswer(tag uint64, answer partition.Answer, hint fsm.MemberID) {
	q.client.handleAnswer(q, tag, answer, hint)
}

// Submit sends a command and calls done exactly once: with its result, or with ServerBusy
// (certainly not applied) or Timeout (possibly applied) when Timing.Retry has passed. It does
// not block; done may be called before it returns.
func (p *Client) Submit(command fsm.Command, done func(fsm.Result)) {
	if code := fsm.Check(command); code != fsm.OK {
		done(fsm.Result{Code: code})
		return
	}
	if !canWrite(p.transport, fsm.LevelOf(command)) {
		done(fsm.Result{Code: belowLevel(p.transport)})
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
	if q.state != requestDone { // it may have reached its deadline meanwhile
		q.bytes = bytes
	}
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
	case fsm.SettleUnlocked:
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
	done := q.done
	admitted := p.advanceLow(q)
	p.mu.Unlock()
	if took := p.counts.count(time.Since(q.deadline.Add(-p.timing.Retry)), result.Code); p.slow.isSlow(took) {
		p.slow.logRequest(p.id, progress, result.Code, took)
	}
	for _, n := range admitted {
		p.encode(n.request, n.header)
	}
	done(result)
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
	if answer.Final && !q.unknown { // a full disk or namespace: another submission would not change that
		p.finish(q, fsm.Result{Code: answer.Result.Code})
		return
	}
	q.state = requestQueued
	p.cursor = min(p.cursor, q.serial)
	p.suspectLeader(q.target, hint)
	p.sendQueued()
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
