package atom

import (
	"math"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// entity writes an entry with the description of an entity.
func (x *Document) entity(e fsm.Entity, counts fsm.Counts, top bool) {
	path, title := entityPath(e)
	e.Settings = e.Settings.WithDefaults()
	i := item{path: path, title: title, author: x.origin.namespace(), published: e.Created, updated: e.Updated}
	x.entry(i, top, func() { x.description(&e, counts) })
}

// elementsOf lists the elements of a description in the order of the service, by which .NET's data contracts
// read them.
func elementsOf(kind fsm.EntityKind) []string {
	switch kind {
	case fsm.QueueEntity:
		return []string{
			"LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive",
			"DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount", "EnableBatchedOperations",
			"SizeInBytes", "MessageCount", "IsAnonymousAccessible", accessListName, "Status", "ForwardTo", "UserMetadata",
			"CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails", "AutoDeleteOnIdle", "EnablePartitioning",
			"EntityAvailabilityStatus", "ForwardDeadLetteredMessagesTo", "EnableExpress", "MaxMessageSizeInKilobytes",
		}
	case fsm.TopicEntity:
		return []string{
			"DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "DuplicateDetectionHistoryTimeWindow",
			"EnableBatchedOperations", "SizeInBytes", "FilteringMessagesBeforePublishing", "IsAnonymousAccessible", accessListName,
			"Status", "UserMetadata", "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails", "SubscriptionCount",
			"SqlFilterCount", "CorrelationFilterCount", "AutoDeleteOnIdle", "EnablePartitioning", "EntityAvailabilityStatus",
			"EnableSubscriptionPartitioning", "EnableExpress", "MaxMessageSizeInKilobytes",
		}
	case fsm.SubscriptionEntity:
	}
	return []string{
		"LockDuration", "RequiresSession", "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration",
		"DeadLetteringOnFilterEvaluationExceptions", "MessageCount", "MaxDeliveryCount", "EnableBatchedOperations", "Status", "ForwardTo",
		"CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails", "UserMetadata", "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle",
		"EntityAvailabilityStatus",
	}
}

// firstVersion returns the version of the API from which on an element is written, "" for all: clients of older ones do
// not expect it.
func firstVersion(element string) string {
	switch element {
	case "MaxMessageSizeInKilobytes":
		return "2021-05"
	case "SqlFilterCount", "CorrelationFilterCount":
		return "2024-05"
	}
	return ""
}

// description writes the description of an entity: its settings, and the elements that only the service has,
// with the service's default.
func (x *Document) description(e *fsm.Entity, c fsm.Counts) {
	name := descriptionName(e.Kind)
	x.open(name, "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
	for _, element := range elementsOf(e.Kind) {
		s := entity.SettingByElement(element)
		switch {
		case x.origin.isBefore(firstVersion(element)):
		case element == "ForwardTo":
			x.destination(element, e.Settings.ForwardToBase, e.Settings.ForwardTo)
		case element == "ForwardDeadLetteredMessagesTo":
			x.destination(element, e.Settings.ForwardDeadLettersToBase, e.Settings.ForwardDeadLettersTo)
		case element == "AutoDeleteOnIdle" && isKeptByForwarding(e.Kind, &e.Settings):
			x.leaf(element, entity.Duration(entity.Forever).ISO())
		case element == "MaxSizeInMegabytes":
			x.number(element, x.origin.megabytesShown(&e.Settings))
		case s != nil:
			x.optional(element, s.ElementText(&e.Settings))
		default:
			x.property(element, e, c)
		}
	}
	x.end(name)
}

// isKeptByForwarding reports whether an entity is shown as one that is never deleted, whatever its setting: a subscription
// that forwards is always in use.
func isKeptByForwarding(kind fsm.EntityKind, s *fsm.EntitySettings) bool {
	return kind == fsm.SubscriptionEntity && s.ForwardTo != ""
}

// destination writes where messages are forwarded to, as the client gave it, with scheme and host in lower case. A name
// alone becomes a URL: clients parse it as one.
func (x *Document) destination(element, base, name string) {
	switch {
	case name == "":
	case base == "":
		x.leaf(element, "sb://"+strings.ToLower(x.origin.Host)+"/"+name)
	default:
		x.leaf(element, strings.ToLower(base)+name)
	}
}

// property writes an element that is no setting.
func (x *Document) property(name string, e *fsm.Entity, c fsm.Counts) {
	switch name {
	case "EnableBatchedOperations":
		x.leaf(name, strconv.FormatBool(e.Settings.BatchedOperations.IsOn(true)))
	case "SupportOrdering":
		x.leaf(name, strconv.FormatBool(e.Settings.Ordering.IsOn(!e.Settings.EnablePartitioning)))
	case "EnableExpress":
		x.leaf(name, strconv.FormatBool(e.Settings.Express))
	case "SqlFilterCount":
		x.number(name, min(c.SQLFilters, math.MaxInt32))
	case "CorrelationFilterCount":
		x.number(name, min(c.CorrelationFilters, math.MaxInt32))
	case "IsAnonymousAccessible", "FilteringMessagesBeforePublishing", "EnableSubscriptionPartitioning":
		x.leaf(name, "false")
	case "EntityAvailabilityStatus":
		x.leaf(name, "Available")
	case "SizeInBytes":
		x.number(name, c.Bytes)
	case "MessageCount":
		x.number(name, messageCount(c))
	case "SubscriptionCount":
		x.number(name, min(c.Subscriptions, math.MaxInt32))
	case "CountDetails":
		x.countDetails(c)
	case accessListName:
		x.accessRules(e.Access)
	case "CreatedAt":
		x.time(name, e.Created)
	case "UpdatedAt":
		x.time(name, e.Updated)
	case "AccessedAt": // of a subscription that was never used: its creation
		if at := c.LastUse; at != 0 || e.Kind != fsm.SubscriptionEntity {
			x.time(name, at)
		} else {
			x.time(name, e.Created)
		}
	}
}

// countDetails declares exactly one prefix, which its children have: JavaScript takes the prefix from the only attribute.
// Go reads 32 bits.
func (x *Document) countDetails(c fsm.Counts) {
	x.open("CountDetails", "xmlns:d2p1", countXMLNS)
	for _, n := range []struct {
		name  string
		count uint64
	}{
		{"Active", c.Active},
		{"DeadLetter", c.DeadLetter},
		{"Scheduled", c.Scheduled},
		{"Transfer", c.Transfer},
		{"TransferDeadLetter", c.TransferDeadLetter},
	} {
		x.number("d2p1:"+n.name+"MessageCount", min(n.count, math.MaxInt32))
	}
	x.end("CountDetails")
}

// messageCount counts all messages of an entity, including deferred ones.
func messageCount(c fsm.Counts) uint64 {
	return c.Active + c.Deferred + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter
}

// KeepShown removes from the settings of a request what is put back as it was shown and may be stored otherwise: the size of
// a partitioned entity, of which any other value is that of one partition, the size of messages in KiB, and the
// AutoDeleteOnIdle of a subscription that forwards.
func (o Origin) KeepShown(kind fsm.EntityKind, asked *entity.Settings, stored *fsm.EntitySettings) {
	if idle := asked.AutoDeleteOnIdle; idle != nil && *idle == entity.Duration(entity.Forever) && isKeptByForwarding(kind, stored) {
		asked.AutoDeleteOnIdle = nil
	}
	if size := asked.MaxMessageBytes; size != nil && *size/1024 == stored.MaxMessageBytes/1024 {
		asked.MaxMessageBytes = nil
	}
	if size := asked.MaxSizeInMegabytes; size != nil && uint64(*size) == o.megabytesShown(stored) {
		asked.MaxSizeInMegabytes = nil
	}
}

// HasMessageSize reports whether the version of the API that the client names has MaxMessageSizeInKilobytes.
func (o Origin) HasMessageSize() bool { return !o.isBefore(firstVersion("MaxMessageSizeInKilobytes")) }

// EntityDocument is an entry with the description of an entity.
func EntityDocument(o Origin, e fsm.Entity, c fsm.Counts) *Document {
	x := newDocument(o)
	x.entity(e, c, true)
	return x
}

// AddEntity adds an entry to a feed.
func (x *Document) AddEntity(e fsm.Entity, c fsm.Counts) { x.entity(e, c, false) }
