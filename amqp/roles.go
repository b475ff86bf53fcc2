package amqp

import (
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Each type of entity allows certain operations. Clients send to queues and receive from them; they send to
// topics and receive from subscriptions. Every sub-queue can be received from unless its messages are
// forwarded. A topic has a sub-queue too: it holds messages that transactions sent through the topic and that
// could not be delivered to other entities.

// attachNotAllowed returns the reason why an entity does not allow a link of a direction
// (docs/service-bus-protocol.md#refused-links); the zero refusal if it allows one. sends means that the client
// sends.
func attachNotAllowed(at *fsm.EntityRef, sends bool) refusal.Cause {
	switch {
	case sends && at.Sub != fsm.MainQueue:
		return refusal.New(wire.ConditionNotAllowed, "A dead-letter queue cannot be sent to. Send to the queue or topic itself.")
	case sends && at.Kind == fsm.SubscriptionEntity:
		return refusal.New(wire.ConditionNotAllowed, "The subscription '%s' cannot be sent to. Send to its topic.", at.Name)
	case sends:
		return refusal.Cause{}
	case holdsTransfers(at):
		return refusal.Cause{}
	case at.Kind == fsm.TopicEntity && at.Sub != fsm.MainQueue:
		return refusal.New(wire.ConditionNotAllowed, "The topic '%s' has no dead-letter queue. Receive from that of one of its subscriptions.", at.Name)
	case at.Kind == fsm.TopicEntity:
		return refusal.New(wire.ConditionNotAllowed, "The topic '%s' cannot be received from. Receive from one of its subscriptions.", at.Name)
	}
	return receiveForwarded(at)
}

// holdsTransfers reports whether at is the sub-queue of a topic that holds messages to receive.
func holdsTransfers(at *fsm.EntityRef) bool {
	return at.Kind == fsm.TopicEntity && at.Sub == fsm.TransferDeadLetterQueue
}

// receiveForwarded returns the refusal for an entity that cannot be received from because its messages are
// forwarded.
func receiveForwarded(at *fsm.EntityRef) refusal.Cause {
	to, setting := "", ""
	switch at.Sub { //nolint:exhaustive // the others go nowhere
	case fsm.MainQueue:
		to, setting = at.Settings.ForwardTo, "ForwardTo"
	case fsm.DeadLetterQueue:
		to, setting = at.Settings.ForwardDeadLettersTo, "ForwardDeadLetteredMessagesTo"
	}
	if to == "" {
		return refusal.Cause{}
	}
	return refusal.AfterChange(wire.ConditionNotAllowed, "The messages of '%s' are forwarded to '%s' and cannot be received here. Receive from there, or clear %s.", at.Name, to, setting)
}

// receiveNotAllowed returns the refusal for a receiving link that was attached before the state machine began
// to refuse it, because the settings have changed since.
func receiveNotAllowed(at *fsm.EntityRef) refusal.Cause {
	return refusal.AfterChange(wire.ConditionNotAllowed, "The messages of '%s' cannot be received here because they are forwarded. Receive them at the destination, or disable forwarding.", at.Name)
}

// Operations of the management node (docs/service-bus-protocol.md#management-operations).
const (
	putTokenOperation       = "put-token" // of $cbs; the others are of $management
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

// isDisabled reports whether the status of an entity forbids links of a direction.
func isDisabled(status fsm.EntityStatus, sends bool) bool {
	switch status {
	case fsm.Disabled:
		return true
	case fsm.SendDisabled:
		return sends
	case fsm.ReceiveDisabled:
		return !sends
	case fsm.Active:
	}
	return false
}
