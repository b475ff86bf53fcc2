package fsm

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm/filter"
)

// Errors of actions. All replicas make the same text of them.
var (
	errReadOnly    = errors.New("property cannot be changed")
	errNoText      = errors.New("property takes strings only")
	errActionBytes = errors.New("the actions of the topic's rules make too much of one message")
)

// evaluatedMessage is the message that rules evaluate: a [filter.ListedMessage], and the copy that
// an action changes. It is reused for message after message, and decodes the properties only when a
// rule reads one.
type evaluatedMessage struct {
	raw        []byte // as written by AppendProperties; valid
	decoded    bool   // properties and folds are decoded from raw
	properties []Property
	folds      []string // of the names in properties
	order      []int32  // indexes of properties, sorted by scope and fold, if there are many

	topic    EntityID
	number   SequenceNumber // at the topic
	enqueued Instant
	expires  Instant // 0 if never
	size     int     // of the payload
	rule     uint64  // number of the current rule

	// Changes of the current action, and their size against propertiesBytesMax.
	changes      []Change
	changedFolds []string
	changedBytes int
}

// begin starts the evaluation of another message.
func (s *evaluatedMessage) begin(topic EntityID, n SequenceNumber, raw []byte) {
	clear(s.properties)
	clear(s.folds)
	*s = evaluatedMessage{
		raw: raw, topic: topic, number: n,
		properties: s.properties[:0], folds: s.folds[:0], order: s.order[:0], changes: s.changes[:0], changedFolds: s.changedFolds[:0],
	}
}

func (s *evaluatedMessage) decodeProperties() {
	s.decoded = true
	if err := eachProperty(s.raw, func(p Property) {
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
func (s *evaluatedMessage) compare(at int32, scope filter.Scope, fold string) int {
	return cmp.Or(cmp.Compare(s.properties[at].Name.Scope, scope), strings.Compare(s.folds[at], fold))
}

// find finds a property by the fold of its name, first among the changes of an action.
func (s *evaluatedMessage) find(scope filter.Scope, fold string) (v filter.Value, found bool) {
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
func (s *evaluatedMessage) System(name string) (filter.Value, bool) {
	if v, found := s.find(filter.System, name); found {
		return v, true
	}
	switch name {
	case filter.SequenceNumber, filter.EnqueuedSequenceNumber:
		return filter.Int(int64(s.number)), true
	case filter.EnqueuedTimeUTC:
		return filter.Time(int64(s.enqueued)), true
	case filter.ExpiresAtUTC:
		if s.expires != 0 {
			return filter.Time(int64(s.expires)), true
		}
	case filter.Size:
		return filter.Int(int64(s.size)), true
	case filter.DeliveryCount:
		return filter.Int(0), true
	}
	return filter.Value{}, filter.IsSystem(name)
}

// User implements filter.Message.
func (s *evaluatedMessage) User(folded string) (filter.Value, bool) {
	return s.find(filter.User, folded)
}

// EachUser implements filter.ListedMessage. The index calls it, before any action.
func (s *evaluatedMessage) EachUser(visit func(name string, v filter.Value)) {
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
func (s *evaluatedMessage) NewID(call int) filter.GUID {
	return filter.DeriveID(uint64(s.number), uint64(s.topic)<<32^s.rule, call)
}

// beginAction discards the changes of the previous action.
func (s *evaluatedMessage) beginAction(rule uint64) {
	s.rule, s.changes, s.changedFolds, s.changedBytes = rule, s.changes[:0], s.changedFolds[:0], 0
}

// Set implements filter.Writer.
func (s *evaluatedMessage) Set(p filter.Property, v filter.Value) error {
	if p.Scope == filter.System && isWritable(p.Name) && v.Kind() != filter.KindText && v.Kind() != filter.KindNull {
		return errNoText
	}
	return s.change(Change{Property: p, Value: v})
}

// Remove implements filter.Writer.
func (s *evaluatedMessage) Remove(p filter.Property) error {
	return s.change(Change{Property: p, Remove: true})
}

func (s *evaluatedMessage) change(c Change) error {
	fold := c.Property.Name
	if c.Property.Scope == filter.User {
		fold = filter.Fold(fold)
	} else if !isWritable(fold) {
		return errReadOnly
	}
	if s.changedBytes += len(fold) + len(c.Value.AsText()) + changeBytesMin; s.changedBytes > propertiesBytesMax {
		return filter.ErrTooLong
	}
	s.changes, s.changedFolds = append(s.changes, c), append(s.changedFolds, fold)
	return nil
}

// isWritable reports whether an action can change a system property: those that senders set.
func isWritable(name string) bool {
	switch name {
	case filter.ContentType, filter.CorrelationID, filter.Label, filter.MessageID, filter.ReplyTo,
		filter.ReplyToSessionID, filter.SessionID, filter.To:
		return true
	}
	return false
}
