package partition

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// speculativeLocksMax is how many locks one entry carries for subscriptions to whose topic
// it sends, at most: whether a subscription gets anything only its rules know, and those
// are asked when the entry is applied.
const speculativeLocksMax = 16

// topicMachine is a machine that knows which topic fills an entity: 0 for none, false when it
// does not know the entity.
type topicMachine interface {
	TopicOf(id fsm.EntityID) (topic fsm.EntityID, known bool)
}

// topicWaiters is the lines at the subscriptions of one topic.
type topicWaiters struct {
	queues      []*waitQueue
	lastMatched []*waitQueue // those that the next message of the topic is likely for, see line.lucky
}

// speculation is a line that the sends of an entry to its topic may be for.
type speculation struct {
	queue    *waitQueue
	expected int
	hasLock  bool // a lock of the entry waits for what comes
	matched  bool // and one of them found something
}

// topicOf asks the machine whose subscription an entity is. Called without mu: apply
// takes mu under the lock of the machine.
func (g *Group) topicOf(id fsm.EntityID) (topic fsm.EntityID, known bool) {
	g.View(func(m Machine) {
		if m, ok := m.(topicMachine); ok {
			topic, known = m.TopicOf(id)
		}
	})
	return topic, known
}

// queueWithTopic finds or makes the line of an address and sees to it that its topic is known,
// which is asked once. Called with mu held, which it may let go of meanwhile.
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
		l.topicKnown, l.topic, l.countKnown = true, topic, false // it may have been dropped meanwhile: ask
		// The first message is worth a try: whoever is mistaken is not tried again.
		l.lastMatched = topic != 0 && key.Sub == fsm.MainQueue
		p.addToTopic(l)
	}
	return l
}

// addToTopic adds a line to those of its topic. Called with mu held, like all below.
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

// rebuildTopics finds the families again after lines have gone.
func (s *waitQueues) rebuildTopics() {
	clear(s.topics)
	for _, l := range s.queues {
		s.addToTopic(l)
	}
}

// setLastMatched notes whether the next message of its topic is likely for a line: whether the
// last one that was looked at was. So a subscription that gets everything has its locks
// in the entries of the sends, and one that gets little costs one lock in vain for each
// message it gets.
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

// speculate notes that messages sent to a topic may become ready at its subscriptions.
// Those for which there is no room, or which were not thought of, are served when apply
// has said what came: an entry later.
func (s *waitQueues) speculate(b *batch, topic fsm.EntityID, messages int) {
	f := s.topics[topic]
	if f == nil {
		return
	}
	for _, l := range f.lastMatched {
		if len(l.waiters) == 0 {
			continue
		}
		x := b.speculationFor(l)
		if x == nil {
			return
		}
		// One lock for every waiter, but not more than there are messages.
		before := min(x.expected, len(l.waiters))
		room := speculativeLocksMax - b.speculativeLocks
		more := messages
		if min(x.expected+more, len(l.waiters))-before > room {
			more = before + room - x.expected
		}
		x.expected += more
		l.expected += more
		b.speculativeLocks += min(x.expected, len(l.waiters)) - before
		s.markReady(l)
	}
}

// speculationFor finds or makes the place of a line in the entry, nil when there is none left.
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

// recordLock notes what a lock for somebody who waited has found.
func (b *batch) recordLock(w *waiter, found int) {
	for i := range b.speculations {
		if x := &b.speculations[i]; x.queue == w.queue && !w.proposeNow {
			x.hasLock = true
			x.matched = x.matched || found > 0
		}
	}
}

// removeSpeculations takes back what an entry was thought to bring, and remembers who waited in vain.
func (s *waitQueues) removeSpeculations(b *batch) {
	for _, x := range b.speculations {
		x.queue.expected -= x.expected
		if x.hasLock && !x.matched {
			s.setLastMatched(x.queue, false)
		}
	}
}

// invalidateAll is doubt for an entity that has gone, which takes the subscriptions of a topic
// along.
func (s *waitQueues) invalidateAll(id fsm.EntityID) {
	s.invalidate(id)
	if f := s.topics[id]; f != nil {
		for _, l := range f.queues {
			l.countKnown = false
			s.markReady(l)
		}
	}
}
