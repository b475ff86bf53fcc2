package management

import (
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// HoldsTransfers reports whether at is the sub-queue of a topic that holds messages to receive.
func HoldsTransfers(at *fsm.EntityRef) bool {
	return at.Kind == fsm.TopicEntity && at.Sub == fsm.TransferDeadLetterQueue
}

// Operations of the management node (docs/service-bus-protocol.md#management-operations).
const (
	RenewOperation          = "com.microsoft:renew-lock"
	PeekOperation           = "com.microsoft:peek-message"
	DispositionOperation    = "com.microsoft:update-disposition"
	DeferredOperation       = "com.microsoft:receive-by-sequence-number"
	ScheduleOperation       = "com.microsoft:schedule-message"
	CancelOperation         = "com.microsoft:cancel-scheduled-message"
	BatchDeleteOperation    = "com.microsoft:batch-delete-messages"
	RenewSessionOperation   = "com.microsoft:renew-session-lock"
	GetStateOperation       = "com.microsoft:get-session-state"
	SetStateOperation       = "com.microsoft:set-session-state"
	ListSessionsOperation   = "com.microsoft:get-message-sessions"
	AddRuleOperation        = "com.microsoft:add-rule"
	RemoveRuleOperation     = "com.microsoft:remove-rule"
	EnumerateRulesOperation = "com.microsoft:enumerate-rules"
)

// RightFor returns the right that an operation needs: Send for scheduling and cancelling, Listen for all
// others, including those on rules (docs/service-bus-protocol.md#rights).
func RightFor(operation string) fsm.Rights {
	if operation == ScheduleOperation || operation == CancelOperation {
		return fsm.Send
	}
	return fsm.Listen
}

// NotAllowed returns the reason why an entity does not allow an operation; the zero Cause if it does,
// or if the operation is unknown.
func NotAllowed(operation string, at *fsm.EntityRef) refusal.Cause {
	switch operation {
	case ScheduleOperation, CancelOperation:
		if at.Kind == fsm.SubscriptionEntity || at.Sub != fsm.MainQueue {
			return refusal.New(wire.ConditionNotAllowed, "Nothing can be scheduled in a subscription or a dead-letter queue. Schedule in the queue or topic itself.")
		}
	case AddRuleOperation, RemoveRuleOperation, EnumerateRulesOperation:
		if at.Kind != fsm.SubscriptionEntity || at.Sub != fsm.MainQueue {
			return refusal.New(wire.ConditionNotAllowed, "The %s '%s' has no rules. Ask a subscription.", at.Kind, at.Name)
		}
	case RenewSessionOperation, GetStateOperation, SetStateOperation, ListSessionsOperation:
		if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue {
			return noSessions(at)
		}
	case RenewOperation, PeekOperation, DispositionOperation, DeferredOperation, BatchDeleteOperation:
		if at.Kind == fsm.TopicEntity && !HoldsTransfers(at) {
			return refusal.New(wire.ConditionNotAllowed, "The topic '%s' holds no messages to receive. Ask one of its subscriptions.", at.Name)
		}
	}
	return refusal.Cause{}
}

// noSessions returns the refusal of an operation on sessions of an entity without sessions.
func noSessions(at *fsm.EntityRef) refusal.Cause {
	return refusal.New(wire.ConditionNotAllowed, "'%s' does not require sessions and has none. Ask an entity that does.", at.Name)
}
