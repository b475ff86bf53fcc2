package partition

import "github.com/peeklock/peeklock/fsm"

const (
	// laneTurnCost is what the commands of one namespace may cost until it is the turn of the next one that has commands.
	laneTurnCost = 64 << 10
	// messageCost is what a message of a command costs in addition to its bytes: a command of 64 KiB can have thousands.
	messageCost = 128
	// settleCostMax is what a command costs at most for properties that it has once and adds to many messages.
	settleCostMax = 1 << 20
	lockBytes     = 24 // about, of a settlement in a command
)

// lanes holds the commands that wait for an entry: in order for each namespace, and by turns among namespaces (deficit round-robin),
// so that a command waits behind few commands of other namespaces, however many of theirs wait. The zero value is empty.
type lanes struct {
	of     map[fsm.NamespaceID]*lane // those with commands
	active []*lane                   // the same in the order of their turns
	count  int                       // of commands
	bytes  int
	// unknown counts the commands of entities whose namespace was not known. Further ones stay behind them.
	unknown map[fsm.EntityID]int
	spare   *lane // for reuse
}

// lane holds the commands of one namespace.
type lane struct {
	namespace   fsm.NamespaceID
	submissions []submission
	head        int // the first one that waits
	bytes       int
	credit      int // what its commands may still cost in this turn
}

// cost is what a command costs.
func (s *submission) cost() int {
	cost := len(s.command) + messageCost*s.info.Messages
	if n := s.info.Settlements; n > 1 {
		cost += min(settleCostMax, (n-1)*max(0, len(s.command)-n*lockBytes))
	}
	return cost
}

func (l *lane) count() int { return len(l.submissions) - l.head }

// add appends a command, 0 if its namespace is not known. It returns false when there are too many: a namespace may have at most
// as many as all together may have in addition, so that there is always a place for another one.
func (q *lanes) add(namespace fsm.NamespaceID, s submission) bool {
	if q.of == nil {
		q.of, q.unknown = make(map[fsm.NamespaceID]*lane), make(map[fsm.EntityID]int)
	}
	if q.unknown[s.info.Entity] > 0 {
		namespace = 0
	}
	l := q.of[namespace]
	switch {
	case l == nil && (q.count >= queueCommandsMax || len(s.command) > queueBytesMax-q.bytes),
		l != nil && (l.count() >= queueCommandsMax-q.count || l.bytes+len(s.command) > queueBytesMax-q.bytes):
		return false
	case l == nil:
		l = q.open(namespace)
	}
	if namespace == 0 && s.info.Entity != 0 {
		q.unknown[s.info.Entity]++
	}
	l.submissions = append(l.submissions, s)
	q.count++
	q.bytes += len(s.command)
	l.bytes += len(s.command)
	return true
}

// open makes a lane that has the last turn.
func (q *lanes) open(namespace fsm.NamespaceID) *lane {
	l := q.spare
	if q.spare = nil; l == nil {
		l = &lane{}
	}
	l.namespace = namespace
	q.of[namespace] = l
	if q.active = append(q.active, l); len(q.active) == 1 {
		l.credit = laneTurnCost
	}
	return l
}

// take returns the next command, false if there is none or it costs more than most.
func (q *lanes) take(most int) (submission, bool) {
	if q.count == 0 {
		return submission{}, false
	}
	l := q.active[0]
	for len(q.active) > 1 && l.credit < l.submissions[l.head].cost() {
		copy(q.active, q.active[1:])
		q.active[len(q.active)-1] = l
		l = q.active[0]
		l.credit += laneTurnCost
	}
	s := l.submissions[l.head]
	if s.cost() > most {
		return submission{}, false
	}
	l.credit = max(0, l.credit-s.cost())
	q.remove(l)
	return s, true
}

// remove removes the first command of a lane, which has the turn.
func (q *lanes) remove(l *lane) {
	s := l.submissions[l.head]
	l.submissions[l.head] = submission{}
	l.head++
	q.count--
	q.bytes -= len(s.command)
	l.bytes -= len(s.command)
	if l.namespace == 0 && s.info.Entity != 0 {
		if q.unknown[s.info.Entity]--; q.unknown[s.info.Entity] == 0 {
			delete(q.unknown, s.info.Entity)
		}
	}
	switch {
	case l.count() == 0:
		q.close(l)
	case l.head > len(l.submissions)/2:
		n := copy(l.submissions, l.submissions[l.head:])
		clear(l.submissions[n:])
		l.submissions, l.head = l.submissions[:n], 0
	}
}

// close removes the lane that has the turn.
func (q *lanes) close(l *lane) {
	delete(q.of, l.namespace)
	q.active = append(q.active[:0], q.active[1:]...)
	if len(q.active) > 0 {
		q.active[0].credit += laneTurnCost
	}
	*l = lane{submissions: l.submissions[:0]}
	q.spare = l
}

// all returns the commands of all namespaces.
func (q *lanes) all() (all []submission) {
	for _, l := range q.active {
		all = append(all, l.submissions[l.head:]...)
	}
	return all
}
