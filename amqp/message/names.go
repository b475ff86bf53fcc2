package message

import "github.com/peeklock/peeklock/fsm/filter"

// Annotations that Service Bus defines (docs/service-bus-protocol.md#message-annotations, #lock-tokens).
const (
	sequenceNumberKey        = "x-opt-sequence-number"
	enqueuedTimeKey          = "x-opt-enqueued-time"
	lockedUntilKey           = "x-opt-locked-until"
	EnqueueSequenceNumberKey = "x-opt-enqueue-sequence-number"
	DeadLetterSourceKey      = "x-opt-deadletter-source"
	messageStateKey          = "x-opt-message-state"
	partitionIDKey           = "x-opt-partition-id"
	lockTokenKey             = "x-opt-lock-token" //nolint:gosec // the name of an annotation
	ScheduledEnqueueTimeKey  = "x-opt-scheduled-enqueue-time"
	partitionKeyKey          = "x-opt-partition-key"
	viaPartitionKeyKey       = "x-opt-via-partition-key"
)

// IsBrokerAnnotation reports whether the broker alone writes an annotation: what a client sends under this name is dropped.
func IsBrokerAnnotation(name []byte) bool {
	switch string(name) {
	case sequenceNumberKey, enqueuedTimeKey, lockedUntilKey, EnqueueSequenceNumberKey,
		DeadLetterSourceKey, messageStateKey, partitionIDKey, lockTokenKey:
		return true
	}
	return false
}

// Application properties that dead-lettering sets. Clients use the same keys for reason and description in the
// info map of rejected (docs/service-bus-protocol.md#settlement-requests).
const (
	deadLetterReasonKey      = "DeadLetterReason"
	deadLetterDescriptionKey = "DeadLetterErrorDescription"
)

// isReasonKey reports whether an application property is one of the two of a dead letter, which clients read as
// strings: the Go client panics on others.
func isReasonKey(name []byte) bool {
	return string(name) == deadLetterReasonKey || string(name) == deadLetterDescriptionKey
}

// isDeadLetterKey reports whether a name is one of the two properties of a dead letter. A rule may use any
// case, and the property keeps its spelling.
func isDeadLetterKey(name string) bool {
	folded := filter.Fold(name)
	return folded == filter.Fold(deadLetterReasonKey) || folded == filter.Fold(deadLetterDescriptionKey)
}

// Fields of the properties section (part 3, 3.2.4) that the package uses.
const (
	messageIDField     = 0
	toField            = 2
	subjectField       = 3
	replyToField       = 4
	correlationIDField = 5
	contentTypeField   = 6
	expiryField        = 8
	creationField      = 9
	groupIDField       = 10
	replyToGroupField  = 12
	propertyFieldCount = 13
)

// systemName is the name of a field in the rule language (docs/service-bus-protocol.md#message-sections).
func systemName(field int) (name string, ok bool) {
	switch field {
	case messageIDField:
		return filter.MessageID, true
	case toField:
		return filter.To, true
	case subjectField:
		return filter.Label, true
	case replyToField:
		return filter.ReplyTo, true
	case correlationIDField:
		return filter.CorrelationID, true
	case contentTypeField:
		return filter.ContentType, true
	case groupIDField:
		return filter.SessionID, true
	case replyToGroupField:
		return filter.ReplyToSessionID, true
	}
	return "", false
}

// fieldOf is the inverse of systemName; it returns -1 if no field has the name.
func fieldOf(name string) int {
	for field := range propertyFieldCount {
		if known, ok := systemName(field); ok && known == name {
			return field
		}
	}
	return -1
}
