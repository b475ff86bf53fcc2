package lanes

import "github.com/peeklock/peeklock/fsm"

// The limits of a queue.
const (
	CommandsMax = 1 << 16
	BytesMax    = 64 << 20
)

const (
	// turnCost is what the commands of one namespace may cost until it is the turn of the next one that has commands.
	turnCost = 64 << 10
	// messageCost is what a message of a command costs in addition to its bytes: a command of 64 KiB can have thousands.
	messageCost = 128
	// settleCostMax is what a command costs at most for properties that it has once and adds to many messages.
	settleCostMax = 1 << 20
	lockBytes     = 24 // about, of a settlement in a command
)

// Command is a command that waits, with what its owner adds.
type Command[T any] struct {
	Info  fsm.CommandInfo
	Bytes []byte
	Done  T
}

// Queue holds commands: in order for each namespace, and by turns among namespaces (deficit round-robin),
// so that a command waits behind few commands of other namespaces, however many of theirs wait. The zero value is empty. It must not be
// used concurrently.
type Queue[T any] struct {
	of     map[fsm.NamespaceID]*lane[T] // those with commands
	active []*lane[T]                   // the same in the order of their turns
	count  int                          // of commands
	bytes  int
	// unknown counts the commands of entities whose namespace was not known. Further ones stay behind them.
	unknown map[fsm.EntityID]int
	spare   *lane[T] // for reuse
}

// lane holds the commands of one namespace.
type lane[T any] struct {
	namespace fsm.NamespaceID
	commands  []Command[T]
	head      int // the first one that waits
	bytes     int
	credit    int // what its commands may still cost in this turn
}

// cost is what a command costs.
func (s *Command[T]) cost() int {
	cost := len(s.Bytes) + messageCost*s.Info.Messages
	if n := s.Info.Settlements; n > 1 {
		cost += min(settleCostMax, (n-1)*max(0, len(s.Bytes)-n*lockBytes))
	}
	return cost
}

func (l *lane[T]) count() int { return len(l.commands) - l.head }

// Len returns the number of commands.
func (q *Queue[T]) Len() int { return q.count }

// Bytes returns the length of all commands.
func (q *Queue[T]) Bytes() int { return q.bytes }

// Add appends a command, 0 if its namespace is not known. It returns false when there are too many: a namespace may have at most
// as many as all together may have in addition, so that there is always a place for another one.
func (q *Queue[T]) Add(namespace fsm.NamespaceID, s Command[T]) bool {
	if q.of == nil {
		q.of, q.unknown = make(map[fsm.NamespaceID]*lane[T]), make(map[fsm.EntityID]int)
	}
	if q.unknown[s.Info.Entity] > 0 {
		namespace = 0
	}
	l := q.of[namespace]
	switch {
	case l == nil && (q.count >= CommandsMax || len(s.Bytes) > BytesMax-q.bytes),
		l != nil && (l.count() >= CommandsMax-q.count || l.bytes+len(s.Bytes) > BytesMax-q.bytes):
		return false
	case l == nil:
		l = q.open(namespace)
	}
	if namespace == 0 && s.Info.Entity != 0 {
		q.unknown[s.Info.Entity]++
	}
	l.commands = append(l.commands, s)
	q.count++
	q.bytes += len(s.Bytes)
	l.bytes += len(s.Bytes)
	return true
}

// open makes a lane that has the last turn.
func (q *Queue[T]) open(namespace fsm.NamespaceID) *lane[T] {
	l := q.spare
	if q.spare = nil; l == nil {
		l = &lane[T]{}
	}
	l.namespace = namespace
	q.of[namespace] = l
	if q.active = append(q.active, l); len(q.active) == 1 {
		l.credit = turnCost
	}
	return l
}

// Take returns the next command and what it costs, false if there is none or it costs more than most.
func (q *Queue[T]) Take(most int) (c Command[T], cost int, ok bool) {
	if q.count == 0 {
		return c, 0, false
	}
	l := q.active[0]
	for len(q.active) > 1 && l.credit < l.commands[l.head].cost() {
		copy(q.active, q.active[1:])
		q.active[len(q.active)-1] = l
		l = q.active[0]
		l.credit += turnCost
	}
	c = l.commands[l.head]
	if cost = c.cost(); cost > most {
		return Command[T]{}, 0, false
	}
	l.credit = max(0, l.credit-cost)
	q.remove(l)
	return c, cost, true
}

// remove removes the first command of a lane, which has the turn.
func (q *Queue[T]) remove(l *lane[T]) {
	s := l.commands[l.head]
	l.commands[l.head] = Command[T]{}
	l.head++
	q.count--
	q.bytes -= len(s.Bytes)
	l.bytes -= len(s.Bytes)
	if l.namespace == 0 && s.Info.Entity != 0 {
		if q.unknown[s.Info.Entity]--; q.unknown[s.Info.Entity] == 0 {
			delete(q.unknown, s.Info.Entity)
		}
	}
	switch {
	case l.count() == 0:
		q.close(l)
	case l.head > len(l.commands)/2:
		n := copy(l.commands, l.commands[l.head:])
		clear(l.commands[n:])
		l.commands, l.head = l.commands[:n], 0
	}
}

// close removes the lane that has the turn.
func (q *Queue[T]) close(l *lane[T]) {
	delete(q.of, l.namespace)
	q.active = append(q.active[:0], q.active[1:]...)
	if len(q.active) > 0 {
		q.active[0].credit += turnCost
	}
	*l = lane[T]{commands: l.commands[:0]}
	q.spare = l
}

// All returns the commands of all namespaces.
func (q *Queue[T]) All() (all []Command[T]) {
	for _, l := range q.active {
		all = append(all, l.commands[l.head:]...)
	}
	return all
}
