package history

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is the kind of an event.
type Kind string

// The kinds.
const (
	SendBegun          Kind = "send begun"
	SendAccepted       Kind = "send accepted"
	SendRefused        Kind = "send refused" // not stored
	SendUnknown        Kind = "send unknown" // the connection was lost, or the wait timed out
	Delivered          Kind = "delivered"    // under a lock
	ReceivedAndDeleted Kind = "taken"        // by receive-and-delete
	Renewed            Kind = "renewed"
	SettleBegun        Kind = "settle begun" // of any verb: from here on the lock may be gone
	Completed          Kind = "completed"    // confirmed by the broker
	Returned           Kind = "returned"     // abandoned or released, confirmed by the broker
	SettleFailed       Kind = "settle failed"
)

// Event is one observation of a client. Fields that its kind does not use are zero.
type Event struct {
	Kind             Kind
	ID               string // of the message: unique over all sends of a history
	Entity           string // where the message was received; "" in the history of a single queue, and for sends
	Client           string
	At               time.Time // set by Log.Add when zero
	Sequence         int64     // Delivered, Taken
	EnqueuedSequence int64     // Delivered, Taken: number under which it was first enqueued; 0 when not asked
	FailedDeliveries uint32    // Delivered, Taken: deliveries before this one that failed
	LockedUntil      time.Time // Delivered, Renewed
	Asked            time.Time // Delivered: when the request for it began; zero if that is not known
	Note             string    // for people
}

// String is the event as one line of a report.
func (e Event) String() string {
	s := fmt.Sprintf("%s %-13s %s", e.At.Format("15:04:05.000"), e.Kind, e.Client)
	if e.Entity != "" {
		s += " at " + e.Entity
	}
	if e.Sequence != 0 {
		s += fmt.Sprintf(" seq=%d attempts=%d", e.Sequence, e.FailedDeliveries)
	}
	if e.EnqueuedSequence != 0 {
		s += fmt.Sprintf(" origin=%d", e.EnqueuedSequence)
	}
	if !e.LockedUntil.IsZero() {
		s += " until=" + e.LockedUntil.Format("15:04:05.000")
	}
	if e.Note != "" {
		s += " (" + e.Note + ")"
	}
	return s
}

// Log collects events. Its zero value is ready to use; its methods are safe for concurrent use. It grows
// with every event: record minutes, not days.
type Log struct {
	mu     sync.Mutex
	events []Event
}

// Add records an event. The order of calls is the order of the history.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.At.IsZero() {
		e.At = time.Now()
	}
	l.events = append(l.events, e)
}

// Events returns a copy of all events.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Count returns the number of events of a kind.
func (l *Log) Count(kind Kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// Violation is one broken rule, with all events of its message.
type Violation struct {
	Rule   string
	ID     string
	Entity string // "" in the history of a single queue
	Events []Event
}

// String is the violation with its events, one per line.
func (b Violation) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: message %s", b.Rule, b.ID)
	if b.Entity != "" {
		s.WriteString(" at " + b.Entity)
	}
	for _, e := range b.Events {
		s.WriteString("\n    " + e.String())
	}
	return s.String()
}

// The rules, as they stand in Breach.Rule.
const (
	RuleLost                 = "lost"
	RuleAfterCompletion      = "delivered after its completion"
	RuleStoredTwice          = "stored twice"
	RuleCopiedTwice          = "copied twice"
	RuleTwoHolders           = "two holders"
	RuleFailedDeliveriesFell = "attempts fell"
	RuleCompletedTwice       = "completed twice"
	RulePhantom              = "phantom"
)

// Check compares a finished history, after the queue was drained, with all rules, and
// returns the violations in the order of the first event of their message. With entities, every
// accepted send must be delivered once at each of them, and nowhere else; events of receivers then
// name their entity.
func Check(events []Event, entities ...string) []Violation {
	eventsByID := map[string][]Event{}
	var order []string
	for _, e := range events {
		if _, ok := eventsByID[e.ID]; !ok {
			order = append(order, e.ID)
		}
		eventsByID[e.ID] = append(eventsByID[e.ID], e)
	}
	if len(entities) == 0 {
		entities = []string{""}
	}
	var violations []Violation
	for _, id := range order {
		for _, entity := range entities {
			for _, rule := range violatedRules(eventsAt(entity, eventsByID[id])) {
				violations = append(violations, Violation{Rule: rule, ID: id, Entity: entity, Events: eventsByID[id]})
			}
		}
		for _, e := range eventsByID[id] {
			if e.isReceipt() && !slices.Contains(entities, e.Entity) {
				violations = append(violations, Violation{Rule: RulePhantom, ID: id, Entity: e.Entity, Events: eventsByID[id]})
			}
		}
	}
	return violations
}

// isReceipt reports whether the event is the arrival of a message.
func (e Event) isReceipt() bool { return e.Kind == Delivered || e.Kind == ReceivedAndDeleted }

// eventsAt returns the events of one entity: how the message was sent, and what happened
// to it there.
func eventsAt(entity string, events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Entity != "" && e.Entity != entity })
}

// message is the state of one message after the events so far.
type message struct {
	begun, accepted, refused      bool
	delivered, completed, deleted bool
	sequence, enqueuedSequence    int64
	failedDeliveries              uint32
	locks                         map[string]time.Time // client to end of its lock
	violated                      []string
}

func (m *message) violate(rule string) {
	if !slices.Contains(m.violated, rule) {
		m.violated = append(m.violated, rule)
	}
}

// violatedRules returns the rules that the events of one message violate.
func violatedRules(events []Event) []string {
	m := &message{locks: map[string]time.Time{}}
	for _, e := range events {
		switch e.Kind {
		case SendBegun:
			m.begun = true
		case SendAccepted:
			m.accepted = true
		case SendRefused:
			m.refused = true
		case Delivered, ReceivedAndDeleted:
			m.checkDelivery(e)
		case Renewed:
			m.locks[e.Client] = e.LockedUntil
		case SettleBegun:
			delete(m.locks, e.Client)
		case Completed:
			if m.completed {
				m.violate(RuleCompletedTwice)
			}
			m.completed = true
		case SendUnknown, Returned, SettleFailed:
		}
	}
	if m.accepted && !m.delivered {
		m.violate(RuleLost)
	}
	if m.delivered && m.refused {
		m.violate(RulePhantom)
	}
	return m.violated
}

// checkDelivery checks a delivery against the events before it.
func (m *message) checkDelivery(e Event) {
	if !m.begun {
		m.violate(RulePhantom)
	}
	switch {
	case !m.delivered || e.Sequence == m.sequence:
		m.checkRedelivery(e)
	case e.EnqueuedSequence != 0 && e.EnqueuedSequence == m.enqueuedSequence:
		m.violate(RuleCopiedTwice) // further events are of the other copy
	default:
		m.violate(RuleStoredTwice)
	}
	clear(m.locks)
	m.delivered = true
	m.sequence, m.enqueuedSequence, m.failedDeliveries = e.Sequence, e.EnqueuedSequence, e.FailedDeliveries
	if e.Kind == ReceivedAndDeleted {
		m.deleted = true
		return
	}
	m.locks[e.Client] = e.LockedUntil
}

// checkRedelivery checks a delivery with the same sequence number as the previous one.
func (m *message) checkRedelivery(e Event) {
	if m.completed || m.deleted {
		m.violate(RuleAfterCompletion)
	}
	if m.delivered && e.FailedDeliveries < m.failedDeliveries {
		m.violate(RuleFailedDeliveriesFell)
	}
	for _, until := range m.locks {
		if e.At.Before(until) {
			m.violate(RuleTwoHolders)
		}
	}
}

// Unfinished lists the messages that were accepted but whose completion or receipt in receive-and-delete was not
// confirmed: those that must still arrive. A message whose completion was
// begun and not answered is listed too, although it may be completed. With entities, a message is listed
// until its end was confirmed at each of them.
func Unfinished(events []Event, entities ...string) []string {
	if len(entities) == 0 {
		entities = []string{""}
	}
	type end struct{ id, place string }
	ended := map[end]bool{}
	accepted := map[string]bool{}
	var order []string
	for _, e := range events {
		switch e.Kind {
		case SendAccepted:
			if !accepted[e.ID] {
				order = append(order, e.ID)
				accepted[e.ID] = true
			}
		case Completed, ReceivedAndDeleted:
			ended[end{e.ID, e.Entity}] = true
		case SendBegun, SendRefused, SendUnknown, Delivered, Renewed, SettleBegun, Returned, SettleFailed:
		}
	}
	return slices.DeleteFunc(order, func(id string) bool {
		return !slices.ContainsFunc(entities, func(entity string) bool { return !ended[end{id, entity}] })
	})
}
