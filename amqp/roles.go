package amqp

import (
	"github.com/peeklock/peeklock/amqp/management"
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
	case management.HoldsTransfers(at):
		return refusal.Cause{}
	case at.Kind == fsm.TopicEntity && at.Sub != fsm.MainQueue:
		return refusal.New(wire.ConditionNotAllowed, "The topic '%s' has no dead-letter queue. Receive from that of one of its subscriptions.", at.Name)
	case at.Kind == fsm.TopicEntity:
		return refusal.New(wire.ConditionNotAllowed, "The topic '%s' cannot be received from. Receive from one of its subscriptions.", at.Name)
	}
	return receiveForwarded(at)
}

// receiveForwarded returns the refusal for an entity that cannot be received from because its messages are
// forwarded. A dead-letter queue can be: it may hold messages that could not be forwarded.
func receiveForwarded(at *fsm.EntityRef) refusal.Cause {
	if at.Sub != fsm.MainQueue || at.Settings.ForwardTo == "" {
		return refusal.Cause{}
	}
	return refusal.AfterChange(wire.ConditionNotAllowed, "The messages of '%s' are forwarded to '%s' and cannot be received here. Receive from there, or clear ForwardTo.", at.Name, at.Settings.ForwardTo)
}

// receiveNotAllowed returns the refusal for a receiving link that was attached before the state machine began
// to refuse it, because the settings have changed since.
func receiveNotAllowed(at *fsm.EntityRef) refusal.Cause {
	return refusal.AfterChange(wire.ConditionNotAllowed, "The messages of '%s' cannot be received here because they are forwarded. Receive them at the destination, or disable forwarding.", at.Name)
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
