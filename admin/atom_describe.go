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
func (x *xmlText) entity(r *http.Request, e fsm.Entity, counts fsm.Counts, top bool) {
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

func (x *xmlText) queue(e fsm.Entity, c fsm.Counts) {
	q := &e.Settings
	x.open("QueueDescription", "xmlns", serviceSpace, "xmlns:i", instanceSpace)
	x.length("LockDuration", q.LockDuration)
	x.number("MaxSizeInMegabytes", q.MaxBytes>>20)
	x.flag("RequiresDuplicateDetection", q.RequiresDuplicateDetection)
	x.flag("RequiresSession", q.RequiresSession)
	x.length("DefaultMessageTimeToLive", q.DefaultTimeToLive)
	x.flag("DeadLetteringOnMessageExpiration", q.DeadLetterOnExpiry)
	x.length("DuplicateDetectionHistoryTimeWindow", q.DuplicateWindow)
	x.number("MaxDeliveryCount", uint64(q.MaxDeliveryCount))
	x.flag("EnableBatchedOperations", true)
	x.number("SizeInBytes", c.Bytes)
	x.number("MessageCount", messageCount(c))
	x.flag("IsAnonymousAccessible", false)
	x.accessRules(e.Access)
	x.leaf("Status", q.Status.String())
	x.optional("ForwardTo", q.ForwardTo)
	x.optional("UserMetadata", q.UserMetadata)
	x.times(e)
	x.flag("SupportOrdering", true)
	x.countDetails(c)
	x.length("AutoDeleteOnIdle", q.AutoDeleteOnIdle)
	x.flag("EnablePartitioning", q.EnablePartitioning)
	x.leaf("EntityAvailabilityStatus", "Available")
	x.optional("ForwardDeadLetteredMessagesTo", q.ForwardDeadLettersTo)
	x.flag("EnableExpress", false)
	x.number("MaxMessageSizeInKilobytes", uint64(q.MaxMessageBytes/1024))
	x.end("QueueDescription")
}

func (x *xmlText) topic(e fsm.Entity, c fsm.Counts) {
	q := &e.Settings
	x.open("TopicDescription", "xmlns", serviceSpace, "xmlns:i", instanceSpace)
	x.length("DefaultMessageTimeToLive", q.DefaultTimeToLive)
	x.number("MaxSizeInMegabytes", q.MaxBytes>>20)
	x.flag("RequiresDuplicateDetection", q.RequiresDuplicateDetection)
	x.length("DuplicateDetectionHistoryTimeWindow", q.DuplicateWindow)
	x.flag("EnableBatchedOperations", true)
	x.number("SizeInBytes", c.Bytes)
	x.flag("FilteringMessagesBeforePublishing", false)
	x.flag("IsAnonymousAccessible", false)
	x.accessRules(e.Access)
	x.leaf("Status", q.Status.String())
	x.optional("UserMetadata", q.UserMetadata)
	x.times(e)
	x.flag("SupportOrdering", true)
	x.countDetails(c)
	x.number("SubscriptionCount", min(c.Subscriptions, math.MaxInt32))
	x.length("AutoDeleteOnIdle", q.AutoDeleteOnIdle)
	x.flag("EnablePartitioning", q.EnablePartitioning)
	x.leaf("EntityAvailabilityStatus", "Available")
	x.flag("EnableSubscriptionPartitioning", false)
	x.flag("EnableExpress", false)
	x.number("MaxMessageSizeInKilobytes", uint64(q.MaxMessageBytes/1024))
	x.end("TopicDescription")
}

func (x *xmlText) subscription(e fsm.Entity, c fsm.Counts) {
	q := &e.Settings
	x.open("SubscriptionDescription", "xmlns", serviceSpace, "xmlns:i", instanceSpace)
	x.length("LockDuration", q.LockDuration)
	x.flag("RequiresSession", q.RequiresSession)
	x.length("DefaultMessageTimeToLive", q.DefaultTimeToLive)
	x.flag("DeadLetteringOnMessageExpiration", q.DeadLetterOnExpiry)
	x.flag("DeadLetteringOnFilterEvaluationExceptions", q.DeadLetterOnFilterErrors)
	x.number("MessageCount", messageCount(c))
	x.number("MaxDeliveryCount", uint64(q.MaxDeliveryCount))
	x.flag("EnableBatchedOperations", true)
	x.leaf("Status", q.Status.String())
	x.optional("ForwardTo", q.ForwardTo)
	x.times(e)
	x.countDetails(c)
	x.optional("UserMetadata", q.UserMetadata)
	x.optional("ForwardDeadLetteredMessagesTo", q.ForwardDeadLettersTo)
	x.length("AutoDeleteOnIdle", q.AutoDeleteOnIdle)
	x.leaf("EntityAvailabilityStatus", "Available")
	x.end("SubscriptionDescription")
}

// times are those of the description. When an entity was last used nobody keeps: to say
// "at its last change" would make a busy queue look idle.
func (x *xmlText) times(e fsm.Entity) {
	x.moment("CreatedAt", e.Created)
	x.moment("UpdatedAt", e.Updated)
	x.leaf("AccessedAt", timeUnset)
}

// countDetails declares exactly one prefix, and its children carry it: JavaScript takes the
// prefix from the only attribute. Go reads 32 bits.
func (x *xmlText) countDetails(c fsm.Counts) {
	x.open("CountDetails", "xmlns:d2p1", countSpace)
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
