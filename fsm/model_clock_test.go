package fsm_test

import (
	"slices"
	"sort"

	"github.com/peeklock/peeklock/fsm"
)

// pulse does what is due. Only the order of what becomes active shows.
func (m *model) pulse() {
	for id, q := range m.queues {
		if q.kind == fsm.TopicEntity {
			m.pulseTopic(id, q)
		}
	}
	for id, q := range m.queues {
		if q.kind == fsm.TopicEntity {
			continue
		}
		for sub := range q.subs {
			list := slices.Clone(q.subs[sub])
			sort.SliceStable(list, func(i, j int) bool { return list[i].until < list[j].until })
			for _, x := range list {
				m.wake(q, fsm.SubQueue(sub), x)
			}
		}
		if auto := q.settings.AutoDeleteOnIdle; auto != fsm.Forever && q.active+fsm.Instant(auto) <= m.serving {
			m.goIdle(id, q)
		}
	}
	for id, at := range m.seen {
		if at+10*60*1000 > m.serving {
			continue
		}
		delete(m.seen, id)
		for key, l := range m.receivers {
			if key[0] == id {
				for _, a := range l.answers {
					m.forget(a)
				}
				delete(m.receivers, key)
			}
		}
	}
}

// wake does what time does with one message.
func (m *model) wake(q *modelQueue, sub fsm.SubQueue, x *modelMessage) {
	switch due := x.until <= m.now; {
	case x.state == fsm.Locked && x.until <= m.serving:
		m.back(q, sub, x, true, 0, fsm.Patch{})
	case x.waits && due:
		q.remove(sub, x)
		q.last++
		x.lock.Sequence, x.state, x.waits, x.until = q.last, fsm.Ready, false, 0
		x.enqueued, x.expires = m.now, q.end(m.now, x.life)
		q.put(sub, x)
	case x.waits || x.state != fsm.Ready && x.state != fsm.Scheduled:
	case m.dead(sub, x):
		m.expire(q, sub, x, fsm.Patch{})
	case x.state == fsm.Scheduled && due:
		x.state, x.until = fsm.Ready, 0
	}
}

// due returns the first times at which something is due, 0 for never. Forgetting ids is left out: it
// has no visible effect.
func (m *model) due() fsm.Times {
	var first fsm.Times
	lower := func(to *fsm.Instant, at fsm.Instant) {
		if at != 0 && (*to == 0 || at < *to) {
			*to = at
		}
	}
	note := func(at fsm.Instant) { lower(&first.Wall, at) }
	for _, q := range m.queues {
		for sub := range q.subs {
			for _, x := range q.subs[sub] {
				if x.state == fsm.Locked {
					lower(&first.Serving, x.until)
				}
				if x.state == fsm.Scheduled {
					note(x.until)
				}
				if x.state != fsm.Ready && x.state != fsm.Scheduled || x.waits {
					continue
				}
				if sub == 0 {
					note(x.expires)
				} else {
					note(x.rots)
				}
			}
		}
		if auto := q.settings.AutoDeleteOnIdle; auto != fsm.Forever {
			lower(&first.Serving, q.active+fsm.Instant(auto))
		}
	}
	for _, at := range m.seen {
		lower(&first.Serving, at+10*60*1000)
	}
	return first
}
