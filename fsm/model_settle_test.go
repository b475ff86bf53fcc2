package fsm_test

import (
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/totals"
)

func (m *model) held(a fsm.Address, l fsm.LockID) *modelMessage {
	for _, x := range m.queues[a.Entity].subs[a.Sub] {
		if x.lock == l && x.state == fsm.Locked {
			return x
		}
	}
	return nil
}

func (m *model) settle(c fsm.SettleMessages) modelResult {
	q := m.queues[c.Address.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.TopicEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	q.active = m.serving
	var res modelResult
	for _, s := range c.Settlements {
		res.Codes = append(res.Codes, m.settleOne(q, c.Address, s))
	}
	return res
}

func (m *model) settleOne(q *modelQueue, a fsm.Address, s fsm.Settlement) fsm.Code {
	x := m.held(a, s.Lock)
	switch {
	case s.Until > m.now+7*24*60*60*1000:
		return fsm.InvalidArgument
	case x == nil:
		return fsm.MessageLockLost
	case s.Verb == fsm.DeadLetter && a.Sub == fsm.DeadLetterQueue:
		return fsm.NotAllowed
	}
	p := fsm.Patch{Properties: s.Properties}
	switch s.Verb {
	case fsm.Complete:
		q.remove(a.Sub, x)
		q.totals.Completed++
	case fsm.Abandon:
		q.totals.Abandoned++
		m.back(q, a.Sub, x, true, s.Until, p)
	case fsm.Release:
		m.back(q, a.Sub, x, false, 0, p)
	case fsm.Defer:
		if a.Sub == fsm.MainQueue {
			if x.attempts++; x.attempts >= q.settings.MaxDeliveryCount {
				m.exceed(q, x, p)
				return fsm.OK
			}
		}
		x.patch(p)
		q.totals.Deferred++
		x.state, x.until, x.byNumber = fsm.Deferred, 0, false
	case fsm.DeadLetter:
		p.Reason, p.Description, p.DeadLetter = s.Reason, s.Description, s.Reason+s.Description != ""
		m.deadLetter(q, x, p, totals.ByReceiver)
	}
	return fsm.OK
}

func (q *modelQueue) remove(sub fsm.SubQueue, x *modelMessage) {
	q.subs[sub] = slices.DeleteFunc(q.subs[sub], func(y *modelMessage) bool { return y == x })
}

func (x *modelMessage) patch(p fsm.Patch) {
	if p.DeadLetter || len(p.Properties) > 0 || len(p.Changes) > 0 {
		x.patches = append(slices.Clone(x.patches), p)
	}
}

func (m *model) deadLetter(q *modelQueue, x *modelMessage, p fsm.Patch, reason totals.Reason) {
	q.totals.DeadLettered[reason]++
	q.remove(fsm.MainQueue, x)
	x.patch(p)
	x.state, x.until, x.byNumber = fsm.Ready, 0, false
	if life := q.settings.DeadLetterTimeToLive; life != fsm.Forever {
		x.rots = (m.now + fsm.Instant(life) + 999) / 1000 * 1000
	}
	q.put(fsm.DeadLetterQueue, x)
}

// exceed dead-letters a message that was delivered too often.
func (m *model) exceed(q *modelQueue, x *modelMessage, p fsm.Patch) {
	p.DeadLetter, p.Reason = true, "MaxDeliveryCountExceeded"
	p.Description = fmt.Sprintf("Message could not be consumed after %d delivery attempts.", x.attempts)
	m.deadLetter(q, x, p, totals.TooManyDeliveries)
}

func (m *model) back(q *modelQueue, sub fsm.SubQueue, x *modelMessage, failed bool, until fsm.Instant, p fsm.Patch) {
	if failed && sub == fsm.MainQueue {
		x.attempts++
	}
	if m.dead(sub, x) {
		m.expire(q, sub, x, p)
		return
	}
	if failed && sub == fsm.MainQueue && x.attempts >= q.settings.MaxDeliveryCount {
		m.exceed(q, x, p)
		return
	}
	x.patch(p)
	x.state, x.until = fsm.Ready, 0
	if x.byNumber {
		x.state, x.byNumber = fsm.Deferred, false
		return
	}
	if until <= m.now && failed && sub == fsm.MainQueue && q.settings.RetryDelay > 0 {
		until = m.now + fsm.Instant(min(q.settings.RetryDelay<<(x.attempts-1), q.settings.RetryDelayMax))
	}
	if until > m.now {
		x.state, x.until = fsm.Scheduled, until
	}
}

func (m *model) renew(c fsm.RenewLocks) modelResult {
	q := m.queues[c.Address.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.TopicEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	q.active = m.serving
	var res modelResult
	for _, l := range c.Locks {
		x := m.held(c.Address, l)
		if x == nil {
			res.Codes, res.Untils = append(res.Codes, fsm.MessageLockLost), append(res.Untils, 0)
			continue
		}
		x.until = m.serving.After(q.settings.LockDuration)
		res.Codes, res.Untils = append(res.Codes, fsm.OK), append(res.Untils, x.until)
	}
	return res
}
