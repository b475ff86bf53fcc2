package filter

import "strings"

// The names of system properties, as the service's message class of .NET spells them. A correlation filter can use the first
// eight. systemProperties says which of them have other names, too.
const (
	ContentType      = "ContentType"
	CorrelationID    = "CorrelationId"
	Label            = "Label"
	MessageID        = "MessageId"
	ReplyTo          = "ReplyTo"
	ReplyToSessionID = "ReplyToSessionId"
	SessionID        = "SessionId"
	To               = "To"
	// The reason and description of a dead letter are application properties on the wire; the
	// message classes of the clients show them as properties of their own.
	DeadLetterReason           = "DeadLetterReason"
	DeadLetterErrorDescription = "DeadLetterErrorDescription"
	DeadLetterSource           = "DeadLetterSource"
	DeliveryCount              = "DeliveryCount"
	EnqueuedSequenceNumber     = "EnqueuedSequenceNumber"
	EnqueuedTimeUTC            = "EnqueuedTimeUtc"
	ExpiresAtUTC               = "ExpiresAtUtc"
	ForcePersistence           = "ForcePersistence"
	IsBodyConsumed             = "IsBodyConsumed"
	LockedUntilUTC             = "LockedUntilUtc"
	LockToken                  = "LockToken"
	PartitionKey               = "PartitionKey"
	ScheduledEnqueueTimeUTC    = "ScheduledEnqueueTimeUtc"
	SequenceNumber             = "SequenceNumber"
	Size                       = "Size"
	State                      = "State"
	TimeToLive                 = "TimeToLive"
	ViaPartitionKey            = "ViaPartitionKey"
)

// systemProperty describes a system property.
type systemProperty struct {
	name  string
	newer string // the name in the message classes of newer clients, where it differs; ""
	kind  Kind   // of the value, if it is not NULL; KindNull if there is no such property
	use   systemUse
}

// systemUse is what a text may do with a system property.
type systemUse uint8

const (
	unusable systemUse = iota // no message has it while rules are evaluated: Check refuses it, and evaluating it is an error
	readable
	settable // readable, and actions can set and remove it
)

// systemProperties returns all system properties: there are no others.
func systemProperties() [26]systemProperty {
	return [...]systemProperty{
		{ContentType, "", KindText, settable},
		{CorrelationID, "", KindText, settable},
		{Label, "Subject", KindText, settable},
		{MessageID, "", KindText, settable},
		{ReplyTo, "", KindText, settable},
		{ReplyToSessionID, "", KindText, settable},
		{SessionID, "", KindText, settable},
		{To, "", KindText, settable},
		{DeadLetterReason, "", KindText, readable},
		{DeadLetterErrorDescription, "", KindText, readable},
		{DeadLetterSource, "", KindText, readable},
		{DeliveryCount, "", KindInt, readable},
		{EnqueuedSequenceNumber, "", KindInt, readable},
		{EnqueuedTimeUTC, "EnqueuedTime", KindTime, readable},
		{ExpiresAtUTC, "ExpiresAt", KindTime, readable},
		{ForcePersistence, "", KindBool, readable},
		{IsBodyConsumed, "", KindBool, readable},
		{LockedUntilUTC, "LockedUntil", KindTime, unusable},
		{LockToken, "", KindGUID, unusable},
		{PartitionKey, "", KindText, settable},
		{ScheduledEnqueueTimeUTC, "ScheduledEnqueueTime", KindTime, settable},
		{SequenceNumber, "", KindInt, readable},
		{Size, "", KindInt, readable},
		{State, "", KindText, readable},
		{TimeToLive, "", KindSpan, settable},
		{ViaPartitionKey, "TransactionPartitionKey", KindText, settable},
	}
}

// findSystem finds a system property by one of its names, case-insensitively. Another name gives a property with that name
// that no rule can use.
func findSystem(name string) systemProperty {
	folded := Fold(name)
	for _, p := range systemProperties() {
		if folded == Fold(p.name) || p.newer != "" && folded == Fold(p.newer) {
			return p
		}
	}
	return systemProperty{name: name}
}

// checkUsable returns a *SyntaxError that lists the system properties if this one exists but never while rules are evaluated.
func (p *property) checkUsable() error {
	if p.Scope == User || p.system.use != unusable || p.system.kind == KindNull {
		return nil
	}
	var names []string
	for _, known := range systemProperties() {
		if known.use != unusable {
			names = append(names, known.name)
		}
	}
	return &SyntaxError{Position: p.position, Expected: "one of the system properties " + strings.Join(names, ", "), Found: "sys." + p.Name}
}
