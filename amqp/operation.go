package amqp

import (
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// holdsTransfers reports whether at is the sub-queue of a topic that holds messages to receive.
func holdsTransfers(at *fsm.EntityRef) bool {
	return at.Kind == fsm.TopicEntity && at.Sub == fsm.TransferDeadLetterQueue
}

// Operations of the management node (docs/service-bus-protocol.md#management-operations).
const (
	renewOperation          = "com.microsoft:renew-lock"
	peekOperation           = "com.microsoft:peek-message"
	dispositionOperation    = "com.microsoft:update-disposition"
	deferredOperation       = "com.microsoft:receive-by-sequence-number"
	scheduleOperation       = "com.microsoft:schedule-message"
	cancelOperation         = "com.microsoft:cancel-scheduled-message"
	batchDeleteOperation    = "com.microsoft:batch-delete-messages"
	renewSessionOperation   = "com.microsoft:renew-session-lock"
	getStateOperation       = "com.microsoft:get-session-state"
	setStateOperation       = "com.microsoft:set-session-state"
	listSessionsOperation   = "com.microsoft:get-message-sessions"
	addRuleOperation        = "com.microsoft:add-rule"
	removeRuleOperation     = "com.microsoft:remove-rule"
	enumerateRulesOperation = "com.microsoft:enumerate-rules"
)

// rightFor returns the right that an operation needs: Send for scheduling and cancelling, Listen for all
// others, including those on rules (docs/service-bus-protocol.md#rights).
func rightFor(operation string) fsm.Rights {
	if operation == scheduleOperation || operation == cancelOperation {
		return fsm.Send
	}
	return fsm.Listen
}

// operationNotAllowed returns the reason why an entity does not allow an operation; the zero refusal if it
// does, or if the operation is unknown.
func operationNotAllowed(operation string, at *fsm.EntityRef) refusal.Cause {
	switch operation {
	case scheduleOperation, cancelOperation:
		if at.Kind == fsm.SubscriptionEntity || at.Sub != fsm.MainQueue {
			return refusal.New(wire.ConditionNotAllowed, "Nothing can be scheduled in a subscription or a dead-letter queue. Schedule in the queue or topic itself.")
		}
	case addRuleOperation, removeRuleOperation, enumerateRulesOperation:
		if at.Kind != fsm.SubscriptionEntity || at.Sub != fsm.MainQueue {
			return refusal.New(wire.ConditionNotAllowed, "The %s '%s' has no rules. Ask a subscription.", at.Kind, at.Name)
		}
	case renewSessionOperation, getStateOperation, setStateOperation, listSessionsOperation:
		if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue {
			return noSessions(at)
		}
	case renewOperation, peekOperation, dispositionOperation, deferredOperation, batchDeleteOperation:
		if at.Kind == fsm.TopicEntity && !holdsTransfers(at) {
			return refusal.New(wire.ConditionNotAllowed, "The topic '%s' holds no messages to receive. Ask one of its subscriptions.", at.Name)
		}
	}
	return refusal.Cause{}
}

// noSessions returns the refusal of an operation on sessions of an entity without sessions.
func noSessions(at *fsm.EntityRef) refusal.Cause {
	return refusal.New(wire.ConditionNotAllowed, "'%s' does not require sessions and has none. Ask an entity that does.", at.Name)
}
