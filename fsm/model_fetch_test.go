package fsm_test

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

func (m *model) fetch(c fsm.FetchDeferred, a *modelAnswer) modelResult {
	return m.take(c.Address, c.Delete, len(c.Sequences), a, func(q *modelQueue, i int) *modelMessage {
		x := q.find(c.Address.Sub, c.Sequences[i])
		if x == nil || x.state != fsm.Deferred {
			return nil
		}
		return x
	})
}

func (m *model) fetchReady(c fsm.FetchReady, a *modelAnswer) modelResult {
	return m.take(c.Address, c.Delete, len(c.Seen), a, func(q *modelQueue, i int) *modelMessage {
		x := q.find(c.Address.Sub, c.Seen[i].Sequence)
		if x == nil || x.lock != c.Seen[i] || x.state != fsm.Ready {
			return nil
		}
		return x
	})
}

func (m *model) take(at fsm.Address, forGood bool, n int, a *modelAnswer, named func(q *modelQueue, i int) *modelMessage) modelResult {
	q := m.queues[at.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.TopicEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	if s := q.settings.Status; s == fsm.Disabled || s == fsm.ReceiveDisabled {
		return modelResult{Code: fsm.EntityDisabled}
	}
	q.active = m.serving
	var picked []*modelMessage
	for i := range n {
		x := named(q, i)
		switch {
		case x == nil || slices.Contains(picked, x):
		case m.dead(at.Sub, x):
			m.expire(q, at.Sub, x, fsm.Patch{})
		default:
			x.byNumber = x.state == fsm.Deferred
			picked = append(picked, x)
		}
	}
	return m.grant(q, picked, forGood, a)
}
