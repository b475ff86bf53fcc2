package management

import (
	"context"
	"maps"
	"slices"

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

// operation is one operation of the management node: what it needs, what it costs, and who performs it. All operations are
// in one table, so that none is performed without a right, a price and a bound.
type operation struct {
	right fsm.Rights
	// refuse returns the reason why an entity does not allow it; the zero Cause if it does.
	refuse func(at *fsm.EntityRef) refusal.Cause
	// work returns the units of work that it costs, in addition to those of a request and of its response; nil: none.
	work func(at *fsm.EntityRef, body wire.Map) int
	// largest returns the bytes of the largest response to a request; nil: it is small.
	largest func(at *fsm.EntityRef, body wire.Map) int
	// stores returns the bytes that a request makes the broker store, each message counted with what the request names
	// once for all of them; nil: none beyond the request.
	stores  func(body wire.Map) int
	perform func(*Manager, context.Context, *Request, wire.Map)
	waits   bool // perform waits for the broker, on a goroutine of its own
}

// table has all operations.
var table = map[string]operation{ //nolint:gochecknoglobals // never changed
	RenewOperation:          {right: fsm.Listen, refuse: needMessages, work: renewWork, largest: renewBytes, perform: (*Manager).renewLock},
	PeekOperation:           {right: fsm.Listen, refuse: needMessages, largest: peekBytes, perform: (*Manager).peekMessage, waits: true},
	DispositionOperation:    {right: fsm.Listen, refuse: needMessages, work: dispositionWork, stores: dispositionBytes, perform: (*Manager).updateDisposition},
	DeferredOperation:       {right: fsm.Listen, refuse: needMessages, work: deferredWork, largest: deferredBytes, perform: (*Manager).receiveBySequenceNumber},
	ScheduleOperation:       {right: fsm.Send, refuse: needSchedule, work: scheduleWork, largest: scheduleBytes, perform: (*Manager).scheduleMessage},
	CancelOperation:         {right: fsm.Send, refuse: needSchedule, work: cancelWork, perform: (*Manager).cancelScheduled},
	BatchDeleteOperation:    {right: fsm.Listen, refuse: needMessages, work: batchDeleteWork, perform: (*Manager).batchDelete},
	RenewSessionOperation:   {right: fsm.Listen, refuse: needSessions, perform: (*Manager).renewSessionLock},
	GetStateOperation:       {right: fsm.Listen, refuse: needSessions, largest: stateBytes, perform: (*Manager).getSessionState, waits: true},
	SetStateOperation:       {right: fsm.Listen, refuse: needSessions, work: setStateWork, perform: (*Manager).setSessionState, waits: true},
	ListSessionsOperation:   {right: fsm.Listen, refuse: needSessions, work: listWork, largest: sessionsBytes, perform: (*Manager).listSessions, waits: true},
	AddRuleOperation:        {right: fsm.Listen, refuse: needRules, work: addRuleWork, perform: (*Manager).addRule, waits: true},
	RemoveRuleOperation:     {right: fsm.Listen, refuse: needRules, work: removeRuleWork, perform: (*Manager).removeRule, waits: true},
	EnumerateRulesOperation: {right: fsm.Listen, refuse: needRules, work: listWork, largest: rulesBytes, perform: (*Manager).enumerateRules, waits: true},
}

// Operations returns the names of all operations, in order.
func Operations() []string { return slices.Sorted(maps.Keys(table)) }

// RightFor returns the right that an operation needs: Send for scheduling and cancelling, Listen for all
// others, including those on rules and those that do not exist (docs/service-bus-protocol.md#rights).
func RightFor(operation string) fsm.Rights {
	if row, ok := table[operation]; ok {
		return row.right
	}
	return fsm.Listen
}

// NotAllowed returns the reason why an entity does not allow an operation; the zero Cause if it does,
// or if the operation is unknown.
func NotAllowed(operation string, at *fsm.EntityRef) refusal.Cause {
	if row, ok := table[operation]; ok {
		return row.refuse(at)
	}
	return refusal.Cause{}
}

func needSchedule(at *fsm.EntityRef) refusal.Cause {
	if at.Kind == fsm.SubscriptionEntity || at.Sub != fsm.MainQueue {
		return refusal.New(wire.ConditionNotAllowed, "Nothing can be scheduled in a subscription or a dead-letter queue. Schedule in the queue or topic itself.")
	}
	return refusal.Cause{}
}

func needRules(at *fsm.EntityRef) refusal.Cause {
	if at.Kind != fsm.SubscriptionEntity || at.Sub != fsm.MainQueue {
		return refusal.New(wire.ConditionNotAllowed, "The %s '%s' has no rules. Ask a subscription.", at.Kind, at.Name)
	}
	return refusal.Cause{}
}

func needSessions(at *fsm.EntityRef) refusal.Cause {
	if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue {
		return noSessions(at)
	}
	return refusal.Cause{}
}

func needMessages(at *fsm.EntityRef) refusal.Cause {
	if at.Kind == fsm.TopicEntity && !HoldsTransfers(at) {
		return refusal.New(wire.ConditionNotAllowed, "The topic '%s' holds no messages to receive. Ask one of its subscriptions.", at.Name)
	}
	return refusal.Cause{}
}

// noSessions returns the refusal of an operation on sessions of an entity without sessions.
func noSessions(at *fsm.EntityRef) refusal.Cause {
	return refusal.New(wire.ConditionNotAllowed, "'%s' does not require sessions and has none. Ask an entity that does.", at.Name)
}
