package partition

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// speculativeLocksMax is how many locks one entry carries for subscriptions to whose topic
// it sends, at most: whether a subscription gets anything only its rules know, and those
// are asked when the entry is applied.
const speculativeLocksMax = 16

// topics is a machine that knows which topic fills an entity: 0 for none, false when it
// does not know the entity.
type topics interface {
	TopicOf(id fsm.EntityID) (topic fsm.EntityID, known bool)
}

// family is the lines at the subscriptions of one topic.
type family struct {
	lines []*line
	lucky []*line // those that the next message of the topic is likely for, see line.lucky
}

// followed is a line that the sends of an entry to its topic may be for.
type followed struct {
	line   *line
	coming int
	asked  bool // a lock of the entry waits for what comes
	found  bool // and one of them found something
}

// topicOf asks the machine whose subscription an entity is. Called without mu: apply
// takes mu under the lock of the machine.
func (g *Group) topicOf(id fsm.EntityID) (topic fsm.EntityID, known bool) {
	g.View(func(m Machine) {
		if m, ok := m.(topics); ok {
			topic, known = m.TopicOf(id)
		}
	})
	return topic, known
}

// placedLine finds or makes the line of an address and sees to it that its topic is known,
// which is asked once. Called with mu held, which it may let go of meanwhile.
func (p *proposer) placedLine(key lineKey) *line {
	if l := p.lines[key]; l != nil && l.placed {
		return l
	}
	p.mu.Unlock()
	topic, known := p.g.topicOf(key.Entity)
	p.mu.Lock()
	l := p.line(key)
	if known && topic == 0 && key.what != wholeLine {
		topic = key.Entity
	}
	if known && !l.placed {
		l.placed, l.topic, l.known = true, topic, false // it may have been dropped meanwhile: ask
		// The first message is worth a try: whoever is mistaken is not tried again.
		l.lucky = topic != 0 && key.Sub == fsm.MainQueue
		p.join(l)
	}
	return l
}

// join adds a line to those of its topic. Called with mu held, like all below.
func (s *linesState) join(l *line) {
	if l.topic == 0 {
		return
	}
	f := s.families[l.topic]
	if f == nil {
		f = &family{}
		s.families[l.topic] = f
	}
	f.lines = append(f.lines, l)
	if l.lucky {
		f.lucky = append(f.lucky, l)
	}
}

// regroup finds the families again after lines have gone.
func (s *linesState) regroup() {
	clear(s.families)
	for _, l := range s.lines {
		s.join(l)
	}
}

// setLucky notes whether the next message of its topic is likely for a line: whether the
// last one that was looked at was. So a subscription that gets everything has its locks
// in the entries of the sends, and one that gets little costs one lock in vain for each
// message it gets.
func (s *linesState) setLucky(l *line, lucky bool) {
	if l.topic == 0 || l.Sub != fsm.MainQueue || l.lucky == lucky {
		return
	}
	l.lucky = lucky
	f := s.families[l.topic]
	if lucky {
		f.lucky = append(f.lucky, l)
	} else if i := slices.Index(f.lucky, l); i >= 0 {
		f.lucky = slices.Delete(f.lucky, i, i+1)
	}
}

// speculate notes that messages sent to a topic may become ready at its subscriptions.
// Those for which there is no room, or which were not thought of, are served when apply
// has said what came: an entry later.
func (s *linesState) speculate(b *batch, topic fsm.EntityID, messages int) {
	f := s.families[topic]
	if f == nil {
		return
	}
	for _, l := range f.lucky {
		if len(l.waiters) == 0 {
			continue
		}
		x := b.follow(l)
		if x == nil {
			return
		}
		// One lock for every waiter, but not more than there are messages.
		before := min(x.coming, len(l.waiters))
		room := speculativeLocksMax - b.guessed
		more := messages
		if min(x.coming+more, len(l.waiters))-before > room {
			more = before + room - x.coming
		}
		x.coming += more
		l.coming += more
		b.guessed += min(x.coming, len(l.waiters)) - before
		s.excite(l)
	}
}

// follow finds or makes the place of a line in the entry, nil when there is none left.
func (b *batch) follow(l *line) *followed {
	for i := range b.followed {
		if b.followed[i].line == l {
			return &b.followed[i]
		}
	}
	if b.guessed >= speculativeLocksMax {
		return nil
	}
	b.followed = append(b.followed, followed{line: l})
	return &b.followed[len(b.followed)-1]
}

// learn notes what a lock for somebody who waited has found.
func (b *batch) learn(w *waiter, found int) {
	for i := range b.followed {
		if x := &b.followed[i]; x.line == w.line && !w.must {
			x.asked = true
			x.found = x.found || found > 0
		}
	}
}

// unfollow takes back what an entry was thought to bring, and remembers who waited in vain.
func (s *linesState) unfollow(b *batch) {
	for _, x := range b.followed {
		x.line.coming -= x.coming
		if x.asked && !x.found {
			s.setLucky(x.line, false)
		}
	}
}

// doubtAll is doubt for an entity that has gone, which takes the subscriptions of a topic
// along.
func (s *linesState) doubtAll(id fsm.EntityID) {
	s.doubt(id)
	if f := s.families[id]; f != nil {
		for _, l := range f.lines {
			l.known = false
			s.excite(l)
		}
	}
}
