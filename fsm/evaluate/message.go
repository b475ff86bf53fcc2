package evaluate

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// errTimeToLive is an error of actions. All replicas make the same text of it.
var errTimeToLive = errors.New("time to live must be positive")

// Message is the message that rules evaluate: a [filter.ListedMessage], and the copy that an action
// changes, a [filter.Writer]. It is reused for message after message, and decodes the properties only
// when a rule reads one. The zero value is ready for [Message.Begin]. It is not safe for concurrent use.
type Message struct {
	raw        []byte // as written by AppendProperties; valid
	decoded    bool   // properties and folds are decoded from raw
	properties []fsm.Property
	folds      []string // of the names in properties
	order      []int32  // indexes of properties, sorted by scope and fold, if there are many

	arrival Arrival
	rule    uint64 // number of the current rule

	// changes of the current action, and their size against PropertiesBytesMax.
	changes      []fsm.Change
	changedFolds []string
	changedBytes int
}

// Arrival is what the state machine knows of a message besides its properties.
type Arrival struct {
	Topic    fsm.EntityID // the topic that the message was sent to; 0 outside of a state machine
	Number   fsm.SequenceNumber
	Enqueued fsm.Instant
	Life     fsm.Millis // time to live at the topic; [fsm.Forever] for none
	Size     int        // bytes of the payload
}

// Begin starts the evaluation of another message. Its properties are those that [fsm.AppendProperties]
// has written, and must be valid; they are referenced until the next Begin or End.
func (s *Message) Begin(a Arrival, properties []byte) {
	clear(s.properties)
	clear(s.folds)
	*s = Message{
		raw: properties, arrival: a,
		properties: s.properties[:0], folds: s.folds[:0], order: s.order[:0], changes: s.changes[:0], changedFolds: s.changedFolds[:0],
	}
}

// End releases the message.
func (s *Message) End() { s.Begin(Arrival{}, nil) }

// BeginRule sets the number of the rule whose filter is evaluated.
func (s *Message) BeginRule(rule uint64) { s.rule = rule }

// Changed reports whether the current action has changed anything.
func (s *Message) Changed() bool { return len(s.changes) > 0 }

// ChangesAnd returns what the current action has changed, followed by one more change, which it does not record.
// The result is valid until the next call of a method that changes the message.
func (s *Message) ChangesAnd(another fsm.Change) []fsm.Change {
	all := append(s.changes, another)
	s.changes = all[:len(s.changes)] // keeps the space
	return all
}

func (s *Message) decodeProperties() {
	s.decoded = true
	if err := fsm.EachProperty(s.raw, func(p fsm.Property) {
		s.properties = append(s.properties, p)
		fold := p.Name.Name
		if p.Name.Scope == filter.User {
			fold = filter.Fold(fold)
		}
		s.folds = append(s.folds, fold)
	}); err != nil {
		panic("fsm: properties that were checked: " + err.Error())
	}
	if len(s.properties) <= linearSearchMax {
		return
	}
	for i := range s.properties {
		s.order = append(s.order, int32(i))
	}
	// Of properties with one name the first counts.
	slices.SortFunc(s.order, func(a, b int32) int {
		return cmp.Or(s.compare(a, s.properties[b].Name.Scope, s.folds[b]), cmp.Compare(a, b))
	})
}

// linearSearchMax is the number of properties up to which a property is found by linear search.
const linearSearchMax = 8

// compare compares the property at an index with a name.
func (s *Message) compare(at int32, scope filter.Scope, fold string) int {
	return cmp.Or(cmp.Compare(s.properties[at].Name.Scope, scope), strings.Compare(s.folds[at], fold))
}

// find finds a property by the fold of its name, first among the changes of an action.
func (s *Message) find(scope filter.Scope, fold string) (v filter.Value, found bool) {
	for i := len(s.changes) - 1; i >= 0; i-- {
		if c := &s.changes[i]; c.Property.Scope == scope && s.changedFolds[i] == fold {
			return c.Value, !c.Remove
		}
	}
	if !s.decoded {
		s.decodeProperties()
	}
	if len(s.order) > 0 {
		low, high := 0, len(s.order)
		for low < high {
			if middle := (low + high) / 2; s.compare(s.order[middle], scope, fold) < 0 {
				low = middle + 1
			} else {
				high = middle
			}
		}
		if low < len(s.order) && s.compare(s.order[low], scope, fold) == 0 {
			return s.properties[s.order[low]].Value, true
		}
		return filter.Value{}, false
	}
	for i := range s.folds {
		if s.folds[i] == fold && s.properties[i].Name.Scope == scope {
			return s.properties[i].Value, true
		}
	}
	return filter.Value{}, false
}

// System implements filter.Message. Properties set by the gateway take precedence over those that
// the state machine knows.
func (s *Message) System(name string) filter.Value {
	if v, found := s.find(filter.System, name); found {
		return v
	}
	switch name {
	case filter.SequenceNumber, filter.EnqueuedSequenceNumber:
		return filter.Int(int64(s.arrival.Number))
	case filter.EnqueuedTimeUTC:
		return filter.Time(int64(s.arrival.Enqueued))
	case filter.ExpiresAtUTC:
		if life := s.TimeToLive(); life != fsm.Forever {
			return filter.Time(int64(s.arrival.Enqueued.Expiry(life)))
		}
	case filter.TimeToLive:
		if life := s.TimeToLive(); life != fsm.Forever {
			return filter.Span(int64(life) * ticksPerMillisecond)
		}
	case filter.State: // rules see no other messages
		return filter.Text("Active")
	case filter.Size:
		return filter.Int(int64(s.arrival.Size))
	case filter.DeliveryCount:
		return filter.Int(0)
	case filter.ForcePersistence, filter.IsBodyConsumed: // of clients only; a message of the service has neither
		return filter.Bool(false)
	}
	return filter.Value{}
}

// TimeToLive returns the time to live that the current action has set, else that of the message.
func (s *Message) TimeToLive() fsm.Millis {
	for i := len(s.changes) - 1; i >= 0; i-- {
		if c := &s.changes[i]; c.Property.Name == filter.TimeToLive && c.Property.Scope == filter.System {
			if c.Remove || c.Value.Kind() == filter.KindNull {
				return fsm.Forever
			}
			return min(fsm.Forever, fsm.Millis(c.Value.Millis()))
		}
	}
	return s.arrival.Life
}

// ticksPerMillisecond is the number of ticks of a time span in a millisecond.
const ticksPerMillisecond = 10_000

// User implements filter.Message.
func (s *Message) User(folded string) (filter.Value, bool) {
	return s.find(filter.User, folded)
}

// EachUser implements filter.ListedMessage. The index calls it, before any action.
func (s *Message) EachUser(visit func(name string, v filter.Value)) {
	if !s.decoded {
		s.decodeProperties()
	}
	for i := range s.properties {
		if p := &s.properties[i]; p.Name.Scope == filter.User {
			visit(s.folds[i], p.Value)
		}
	}
}

// NewID implements filter.Message: the ids of different messages, topics and rules differ.
func (s *Message) NewID(call int) filter.GUID {
	return filter.DeriveID(uint64(s.arrival.Number), uint64(s.arrival.Topic)<<32^s.rule, call)
}

// BeginAction begins the action of a rule, or returns to the message as it was sent: it discards the changes of
// the previous action.
func (s *Message) BeginAction(rule uint64) {
	s.rule, s.changes, s.changedFolds, s.changedBytes = rule, s.changes[:0], s.changedFolds[:0], 0
}

// Set implements filter.Writer.
func (s *Message) Set(p filter.Property, v filter.Value, from string) error {
	if p.Scope == filter.System && p.Name == filter.TimeToLive && v.Kind() != filter.KindNull && v.AsInt() <= 0 {
		return errTimeToLive
	}
	if err := s.change(fsm.Change{Property: p, Value: v, From: from}); err != nil || p.Scope == filter.User || p.Name != filter.SessionID {
		return err
	}
	// A partition key that is present always equals the session.
	if _, found := s.find(filter.System, filter.PartitionKey); !found {
		return nil
	}
	return s.change(fsm.Change{Property: filter.Property{Name: filter.PartitionKey, Scope: filter.System}, Value: v})
}

// Remove implements filter.Writer.
func (s *Message) Remove(p filter.Property) error {
	return s.change(fsm.Change{Property: p, Remove: true})
}

func (s *Message) change(c fsm.Change) error {
	fold := c.Property.Name
	if c.Property.Scope == filter.User {
		fold = filter.Fold(fold)
	}
	if s.changedBytes += len(fold) + len(c.Value.AsText()) + len(c.From) + fsm.ChangeBytesMin; s.changedBytes > fsm.PropertiesBytesMax {
		return filter.ErrTooLong
	}
	s.changes, s.changedFolds = append(s.changes, c), append(s.changedFolds, fold)
	return nil
}
