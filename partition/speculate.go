package partition

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// speculativeLocksMax bounds the locks that one entry carries for subscriptions to whose topic it sends:
// whether a subscription gets a message depends on its rules, which are evaluated when the entry is applied.
const speculativeLocksMax = 16

// topicMachine is implemented by machines that know which topic fills an entity: 0 for none, false for an
// unknown entity.
type topicMachine interface {
	TopicOf(id fsm.EntityID) (topic fsm.EntityID, known bool)
}

// topicWaiters holds the wait queues at the subscriptions of one topic.
type topicWaiters struct {
	queues      []*waitQueue
	lastMatched []*waitQueue // those that the next message of the topic is likely to match, see waitQueue.lastMatched
}

// topicOf asks the machine for the topic of a subscription. Called without mu, because apply takes mu under
// the lock of the machine.
func (g *Group) topicOf(id fsm.EntityID) (topic fsm.EntityID, known bool) {
	g.View(func(m Machine) {
		if m, ok := m.(topicMachine); ok {
			topic, known = m.TopicOf(id)
		}
	})
	return topic, known
}

// queueWithTopic returns the wait queue of an address and makes sure that its topic is known, which is asked
// once. Called with mu held; it may release mu meanwhile.
func (p *proposer) queueWithTopic(key waitKey) *waitQueue {
	if l := p.queues[key]; l != nil && l.topicKnown {
		return l
	}
	p.mu.Unlock()
	topic, known := p.g.topicOf(key.Entity)
	p.mu.Lock()
	l := p.queueFor(key)
	if known && topic == 0 && key.kind != waitMessages {
		topic = key.Entity
	}
	if known && !l.topicKnown {
		l.topicKnown, l.topic, l.countKnown = true, topic, false // it may have been deleted meanwhile: find out with a lock
		// Speculate on the first message: after a miss the queue is not tried again.
		l.lastMatched = topic != 0 && key.Sub == fsm.MainQueue
		p.addToTopic(l)
	}
	return l
}

// addToTopic adds a wait queue to those of its topic. Called with mu held, like all below.
func (s *waitQueues) addToTopic(l *waitQueue) {
	if l.topic == 0 {
		return
	}
	f := s.topics[l.topic]
	if f == nil {
		f = &topicWaiters{}
		s.topics[l.topic] = f
	}
	f.queues = append(f.queues, l)
	if l.lastMatched {
		f.lastMatched = append(f.lastMatched, l)
	}
}

// rebuildTopics rebuilds the queues by topic after wait queues were dropped.
func (s *waitQueues) rebuildTopics() {
	clear(s.topics)
	for _, l := range s.queues {
		s.addToTopic(l)
	}
}

// setLastMatched records whether the next message of the topic is likely to match a subscription: whether the
// last evaluated one did. A subscription that gets everything has its locks in the entries of the sends; one
// that gets little costs one wasted lock for each message that it gets.
func (s *waitQueues) setLastMatched(l *waitQueue, matched bool) {
	if l.topic == 0 || l.Sub != fsm.MainQueue || l.lastMatched == matched {
		return
	}
	l.lastMatched = matched
	f := s.topics[l.topic]
	if matched {
		f.lastMatched = append(f.lastMatched, l)
	} else if i := slices.Index(f.lastMatched, l); i >= 0 {
		f.lastMatched = slices.Delete(f.lastMatched, i, i+1)
	}
}

// speculate counts messages sent to a topic as expected at its subscriptions. Subscriptions beyond
// speculativeLocksMax, and those that did not match last, are served one entry later, when apply has reported
// what became ready.
func (s *waitQueues) speculate(b *batch, topic fsm.EntityID, messages int) {
	f := s.topics[topic]
	if f == nil {
		return
	}
	for _, l := range f.lastMatched {
		if l.waiters.Len() == 0 {
			continue
		}
		x := b.speculationFor(l)
		if x == nil {
			return
		}
		// One lock for every waiter, but not more than there are messages.
		before := min(x.expected, l.waiters.Len())
		allowed := speculativeLocksMax - b.speculativeLocks
		more := messages
		if min(x.expected+more, l.waiters.Len())-before > allowed {
			more = before + allowed - x.expected
		}
		x.expected += more
		l.expected += more
		b.speculativeLocks += min(x.expected, l.waiters.Len()) - before
		s.markReady(l)
	}
}

// speculationFor returns the speculation of a wait queue in the entry and creates it if needed; nil when the
// entry has no locks left.
func (b *batch) speculationFor(l *waitQueue) *speculation {
	for i := range b.speculations {
		if b.speculations[i].queue == l {
			return &b.speculations[i]
		}
	}
	if b.speculativeLocks >= speculativeLocksMax {
		return nil
	}
	b.speculations = append(b.speculations, speculation{queue: l})
	return &b.speculations[len(b.speculations)-1]
}

// recordLock records how many messages the lock of a waiter has found.
func (b *batch) recordLock(w *waiter, found int) {
	for i := range b.speculations {
		if x := &b.speculations[i]; x.queue == w.queue && !w.proposeNow {
			x.hasLock = true
			x.matched = x.matched || found > 0
		}
	}
}

// removeSpeculations removes what an entry was expected to bring, and records the queues whose locks found
// nothing.
func (s *waitQueues) removeSpeculations(b *batch) {
	for _, x := range b.speculations {
		x.queue.expected -= x.expected
		if x.hasLock && !x.matched {
			s.setLastMatched(x.queue, false)
		}
	}
}

// invalidateAll is invalidate for an entity that was deleted; a topic includes its subscriptions.
func (s *waitQueues) invalidateAll(id fsm.EntityID) {
	s.invalidate(id)
	if f := s.topics[id]; f != nil {
		for _, l := range f.queues {
			l.countKnown = false
			s.markReady(l)
		}
	}
}
