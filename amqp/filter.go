package amqp

import (
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Filters that a client relies on, and that the gateway cannot apply, are refused: a receiver that gets messages
// which it did not ask for would settle them. Other filters are left out of the reply, as the standard requires
// (part 3, 3.5.3).

const (
	nonExclusiveFilterKey        = "com.microsoft:non-exclusive-session-filter" // the client appends ":list"
	selectorDescriptor           = wire.Symbol("apache.org:selector-filter:string")
	selectorCode          uint64 = 0x0000468C00000004
)

// unsupportedFilter returns the reason why the filters of a source are refused, if they are. wants is the session
// that they name.
func unsupportedFilter(source *wire.Source, wants *sessionFilter) refusal {
	if wants != nil && browses(source) {
		return refusal{wire.ConditionNotImplemented, "A session cannot be browsed over a link. Browse the entity, or peek at the session.", retryAfterChange}
	}
	for _, pair := range source.Filter {
		if strings.HasPrefix(fmt.Sprint(pair.Key), nonExclusiveFilterKey) {
			return refusal{wire.ConditionNotImplemented, "Non-exclusive sessions are not supported. Accept the session exclusively.", retryAfterChange}
		}
		described, ok := pair.Value.(wire.Described)
		if ok && (described.Descriptor == selectorDescriptor || described.Descriptor == selectorCode) {
			return refusal{wire.ConditionNotImplemented, "Selectors of receivers are not supported. Use a subscription with an SQL filter, or select in the program.", retryAfterChange}
		}
	}
	return refusal{}
}
