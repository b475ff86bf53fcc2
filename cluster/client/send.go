package client

import (
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

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
	return group.Leader()
}

// collectReceivers adds the queued lock calls to the batch; it reports whether the batch has
// submissions. mu is held.
func (p *Client) collectReceivers() bool {
	for len(p.queuedReceivers) > 0 && len(p.batch) < sendBatchMax {
		receiver := p.queuedReceivers[0]
		p.queuedReceivers[0] = nil
		p.queuedReceivers = p.queuedReceivers[1:]
		call := receiver.call
		if call == nil {
			continue // ended while it was queued
		}
		call.inQueue = false
		if call.state != requestQueued {
			continue
		}
		call.state, call.target, call.probe = requestSent, p.leader, call.unknown
		call.submissions++
		p.batch = append(p.batch, submission{lock: call, tag: call.submissions, bytes: call.bytes, probe: call.probe})
	}
	if len(p.queuedReceivers) == 0 {
		p.queuedReceivers = nil
	}
	return len(p.batch) > 0
}

// sendLock starts one submission; mu is not held. After an unknown outcome the command is
// submitted like any other and does not wait at the leader: messages may be locked for it
// already, and only the answer of the state machine says so.
func (p *Client) sendLock(target fsm.MemberID, a *submission) {
	call, tag := a.lock, a.tag
	if a.probe {
		p.submitTo(target, a.bytes, call, tag)
		return
	}
	var stop func()
	if target != p.self {
		conn := p.transport.Conn(target)
		if conn == nil {
			call.HandleAnswer(tag, partition.Answer{Outcome: partition.Refused}, "")
			return
		}
		id := conn.Lock(p.id, time.Until(call.until), a.bytes, call, tag)
		stop = func() { conn.Cancel(id) }
	} else {
		group := p.transport.LocalReplica(p.id)
		if group == nil {
			call.HandleAnswer(tag, partition.Answer{Outcome: partition.Refused}, "")
			return
		}
		stop = group.Lock(partition.LockRequest{
			Header: call.header, Lock: call.lock, Accept: call.accept, Until: call.until,
			Done: func(answer partition.Answer) {
				call.HandleAnswer(tag, answer, leaderHint(group, answer))
			},
		})
	}
	p.mu.Lock()
	waits := call.state == requestSent && call.submissions == tag
	if waits {
		call.stop = stop
	}
	cancelled := call.cancelled
	p.mu.Unlock()
	if !waits || cancelled {
		stop() // ended, sent elsewhere or cancelled meanwhile
	}
}
