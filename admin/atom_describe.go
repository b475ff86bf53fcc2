package admin

import (
	"math"
	"net/http"

	"github.com/peeklock/peeklock/fsm"
)

// replyEntity answers with one entity.
func (s *Server) replyEntity(w http.ResponseWriter, r *http.Request, status int, e fsm.Entity, counts fsm.Counts) {
	x := newXML()
	x.entity(r, e, counts, true)
	s.replyXML(w, status, atomEntryType, x)
}

// entity writes an entry with the description of its kind. Elements stand in the order of the
// service, which .NET's data contracts read by; what nothing here has gets the service's default.
func (x *xmlWriter) entity(r *http.Request, e fsm.Entity, counts fsm.Counts, top bool) {
	path, title := entityPath(e)
	e.Settings = e.Settings.WithDefaults()
	item := atomItem{path: path, title: title, author: namespaceOf(r), published: e.Created, updated: e.Updated}
	x.entry(r, item, top, func() {
		switch e.Kind {
		case fsm.QueueEntity:
			x.queue(e, counts)
		case fsm.TopicEntity:
			x.topic(e, counts)
		case fsm.SubscriptionEntity:
			x.subscription(e, counts)
		}
	})
}

func (x *xmlWriter) queue(e fsm.Entity, c fsm.Counts) {
	q := &e.Settings
	x.open("QueueDescription", "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
	x.duration("LockDuration", q.LockDuration)
	x.number("MaxSizeInMegabytes", q.MaxBytes>>20)
	x.bool("RequiresDuplicateDetection", q.RequiresDuplicateDetection)
	x.bool("RequiresSession", q.RequiresSession)
	x.duration("DefaultMessageTimeToLive", q.DefaultTimeToLive)
	x.bool("DeadLetteringOnMessageExpiration", q.DeadLetterOnExpiry)
	x.duration("DuplicateDetectionHistoryTimeWindow", q.DuplicateWindow)
	x.number("MaxDeliveryCount", uint64(q.MaxDeliveryCount))
	x.bool("EnableBatchedOperations", true)
	x.number("SizeInBytes", c.Bytes)
	x.number("MessageCount", messageCount(c))
	x.bool("IsAnonymousAccessible", false)
	x.accessRules(e.Access)
	x.leaf("Status", q.Status.String())
	x.optional("ForwardTo", q.ForwardTo)
	x.optional("UserMetadata", q.UserMetadata)
	x.times(e)
	x.bool("SupportOrdering", true)
	x.countDetails(c)
	x.duration("AutoDeleteOnIdle", q.AutoDeleteOnIdle)
	x.bool("EnablePartitioning", q.EnablePartitioning)
	x.leaf("EntityAvailabilityStatus", "Available")
	x.optional("ForwardDeadLetteredMessagesTo", q.ForwardDeadLettersTo)
	x.bool("EnableExpress", false)
	x.number("MaxMessageSizeInKilobytes", uint64(q.MaxMessageBytes/1024))
	x.end("QueueDescription")
}

func (x *xmlWriter) topic(e fsm.Entity, c fsm.Counts) {
	q := &e.Settings
	x.open("TopicDescription", "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
	x.duration("DefaultMessageTimeToLive", q.DefaultTimeToLive)
	x.number("MaxSizeInMegabytes", q.MaxBytes>>20)
	x.bool("RequiresDuplicateDetection", q.RequiresDuplicateDetection)
	x.duration("DuplicateDetectionHistoryTimeWindow", q.DuplicateWindow)
	x.bool("EnableBatchedOperations", true)
	x.number("SizeInBytes", c.Bytes)
	x.bool("FilteringMessagesBeforePublishing", false)
	x.bool("IsAnonymousAccessible", false)
	x.accessRules(e.Access)
	x.leaf("Status", q.Status.String())
	x.optional("UserMetadata", q.UserMetadata)
	x.times(e)
	x.bool("SupportOrdering", true)
	x.countDetails(c)
	x.number("SubscriptionCount", min(c.Subscriptions, math.MaxInt32))
	x.duration("AutoDeleteOnIdle", q.AutoDeleteOnIdle)
	x.bool("EnablePartitioning", q.EnablePartitioning)
	x.leaf("EntityAvailabilityStatus", "Available")
	x.bool("EnableSubscriptionPartitioning", false)
	x.bool("EnableExpress", false)
	x.number("MaxMessageSizeInKilobytes", uint64(q.MaxMessageBytes/1024))
	x.end("TopicDescription")
}

func (x *xmlWriter) subscription(e fsm.Entity, c fsm.Counts) {
	q := &e.Settings
	x.open("SubscriptionDescription", "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
	x.duration("LockDuration", q.LockDuration)
	x.bool("RequiresSession", q.RequiresSession)
	x.duration("DefaultMessageTimeToLive", q.DefaultTimeToLive)
	x.bool("DeadLetteringOnMessageExpiration", q.DeadLetterOnExpiry)
	x.bool("DeadLetteringOnFilterEvaluationExceptions", q.DeadLetterOnFilterErrors)
	x.number("MessageCount", messageCount(c))
	x.number("MaxDeliveryCount", uint64(q.MaxDeliveryCount))
	x.bool("EnableBatchedOperations", true)
	x.leaf("Status", q.Status.String())
	x.optional("ForwardTo", q.ForwardTo)
	x.times(e)
	x.countDetails(c)
	x.optional("UserMetadata", q.UserMetadata)
	x.optional("ForwardDeadLetteredMessagesTo", q.ForwardDeadLettersTo)
	x.duration("AutoDeleteOnIdle", q.AutoDeleteOnIdle)
	x.leaf("EntityAvailabilityStatus", "Available")
	x.end("SubscriptionDescription")
}

// times are those of the description. When an entity was last used nobody keeps: to say
// "at its last change" would make a busy queue look idle.
func (x *xmlWriter) times(e fsm.Entity) {
	x.time("CreatedAt", e.Created)
	x.time("UpdatedAt", e.Updated)
	x.leaf("AccessedAt", timeUnset)
}

// countDetails declares exactly one prefix, and its children carry it: JavaScript takes the
// prefix from the only attribute. Go reads 32 bits.
func (x *xmlWriter) countDetails(c fsm.Counts) {
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

// messageCount is everything that an entity holds, deferred messages among it.
func messageCount(c fsm.Counts) uint64 {
	return c.Active + c.Deferred + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter
}
