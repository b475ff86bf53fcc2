package amqp

import (
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Filters that a client relies on, and that the gateway cannot apply, are refused: a receiver that gets messages
// which it did not ask for would settle them. Other filters are left out of the reply, as the standard requires
// (part 3, 3.5.3).

const (
	selectorDescriptor        = wire.Symbol("apache.org:selector-filter:string")
	selectorCode       uint64 = 0x0000468C00000004
)

// Browsing is receiving without removing: the source of the link has the distribution mode "copy" (part 3,
// 3.5.3). A queue browser of JMS asks for it, with settled transfers, which would otherwise mean
// receive-and-delete.

// distributionCopy is the distribution mode of a browsing link.
const distributionCopy = wire.Symbol("copy")

// browses reports whether a source asks to browse. A durable subscription of JMS has the same distribution mode
// and consumes: its terminus is durable.
func browses(s *wire.Source) bool {
	return s != nil && s.DistributionMode != nil && *s.DistributionMode == distributionCopy && (s.Durable == nil || *s.Durable == 0)
}

// selectorFilter is the selector of a receiving link.
type selectorFilter struct {
	text  string
	sql   string   // the SQL filter that it becomes
	reply wire.Map // the filter as the client sent it: the reply shows filters that are applied
}

// readFilters returns the session and the selector that the filters of a source name, nil for none, or the reason why the
// filters are refused.
func (l *link) readFilters(source *wire.Source) (wants *sessionFilter, selects *selectorFilter, cause refusal.Cause) {
	if wants, cause = sessionFilterOf(source.Filter); cause.Condition == "" {
		selects, cause = selectorOf(source, wants)
	}
	if cause.Condition == "" && selects != nil && !browses(source) && l.kind != entityNode {
		cause = refusal.AfterChange(wire.ConditionNotImplemented, "Only receivers at entities can have a selector. Leave it out.")
	}
	return wants, selects, cause
}

// selectorOf returns the selector that the filters of a source have, nil if they have none, or the reason why the
// filters are refused. wants is the session that they name.
func selectorOf(source *wire.Source, wants *sessionFilter) (*selectorFilter, refusal.Cause) {
	if wants != nil && browses(source) {
		return nil, refusal.AfterChange(wire.ConditionNotImplemented, "A session cannot be browsed over a link. Browse the entity, or peek at the session.")
	}
	var found *selectorFilter
	for _, pair := range source.Filter {
		described, ok := pair.Value.(wire.Described)
		if !ok || described.Descriptor != selectorDescriptor && described.Descriptor != selectorCode {
			continue
		}
		text, ok := described.Value.(string)
		_, named := wire.AsText(pair.Key)
		switch {
		case !ok || !named:
			return nil, refusal.New(wire.ConditionInvalidField, "The selector is not a string, or its key is not a symbol. Correct it.")
		case found != nil:
			return nil, refusal.New(wire.ConditionInvalidField, "The receiver has two selectors. Join them with AND.")
		case wants != nil:
			return nil, refusal.AfterChange(wire.ConditionNotImplemented, "A receiver of a session cannot have a selector. Receive all messages of the session.")
		}
		sql, err := filter.SelectorSQL(text)
		if err != nil {
			return nil, refusal.New(wire.ConditionInvalidField, "The selector cannot be used: %s.", err)
		}
		found = &selectorFilter{text: text, sql: sql, reply: wire.Map{pair}}
	}
	return found, refusal.Cause{}
}
