package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// settingName is one setting: what it is called, whether it is given, who has it.
type settingName struct {
	name  string
	given bool
	kinds []fsm.EntityKind
}

// settingNames is the one table that says which kind of entity has which setting. What a
// subscription does not have is its topic's, and the other way round.
func (s *Settings) settingNames() []settingName {
	const queue, topic, subscription = fsm.QueueEntity, fsm.TopicEntity, fsm.SubscriptionEntity
	every := []fsm.EntityKind{queue, topic, subscription}
	stored := []fsm.EntityKind{queue, topic}       // about what is sent
	given := []fsm.EntityKind{queue, subscription} // about what is given out
	return []settingName{
		{"lockDuration", s.LockDuration != nil, given},
		{"maxDeliveryCount", s.MaxDeliveryCount != nil, given},
		{"maxMessageBytes", s.MaxMessageBytes != nil, stored},
		{"defaultMessageTimeToLive", s.DefaultMessageTimeToLive != nil, every},
		{"deadLetteringOnMessageExpiration", s.DeadLetteringOnMessageExpiration != nil, given},
		{"requiresDuplicateDetection", s.RequiresDuplicateDetection != nil, stored},
		{"duplicateDetectionHistoryTimeWindow", s.DuplicateDetectionHistoryTimeWindow != nil, stored},
		{"autoDeleteOnIdle", s.AutoDeleteOnIdle != nil, every},
		{"maxSizeInMegabytes", s.MaxSizeInMegabytes != nil, stored},
		{"status", s.Status != nil, every},
		{"userMetadata", s.UserMetadata != nil, every},
		{"deadLetteringOnFilterEvaluationExceptions", s.DeadLetteringOnFilterEvaluationExceptions != nil, []fsm.EntityKind{subscription}},
		{"forwardTo", s.ForwardTo != nil, given},
		{"forwardDeadLetteredMessagesTo", s.ForwardDeadLetteredMessagesTo != nil, given},
		{"requiresSession", s.RequiresSession != nil, given},
		{"enablePartitioning", s.EnablePartitioning != nil, stored},
		{"deadLetterTimeToLive", s.DeadLetterTimeToLive != nil, given},
		{"retryDelay", s.RetryDelay != nil, given},
		{"retryDelayMax", s.RetryDelayMax != nil, given},
	}
}

// settingNamesOf lists the settings of a kind, for the text of an error.
func settingNamesOf(kind fsm.EntityKind) string {
	var names []string
	for _, s := range new(Settings).settingNames() {
		if slices.Contains(s.kinds, kind) {
			names = append(names, s.name)
		}
	}
	return strings.Join(names, ", ")
}

// checkKind refuses settings that the kind does not have: they must not look as if they
// worked.
func (s *Settings) checkKind(kind fsm.EntityKind) error {
	for _, f := range s.settingNames() {
		if !f.given || slices.Contains(f.kinds, kind) {
			continue
		}
		switch kind {
		case fsm.TopicEntity:
			return fmt.Errorf("%s is a setting of subscriptions, not of their topic", f.name)
		case fsm.SubscriptionEntity:
			return fmt.Errorf("%s is a setting of the topic, not of its subscriptions", f.name)
		case fsm.QueueEntity:
			return fmt.Errorf("%s is a setting of subscriptions, not of queues", f.name)
		}
	}
	return nil
}

// describeSettings shows the settings that the kind has.
func describeSettings(kind fsm.EntityKind, settings fsm.EntitySettings) Settings {
	q := settings.WithDefaults()
	status := q.Status.String()
	s := Settings{
		DefaultMessageTimeToLive: fromMillis(q.DefaultTimeToLive),
		AutoDeleteOnIdle:         fromMillis(q.AutoDeleteOnIdle),
		Status:                   &status,
		UserMetadata:             &q.UserMetadata,
	}
	if kind != fsm.TopicEntity {
		s.LockDuration = fromMillis(q.LockDuration)
		s.MaxDeliveryCount = &q.MaxDeliveryCount
		s.DeadLetteringOnMessageExpiration = &q.DeadLetterOnExpiry
		s.ForwardTo, s.ForwardDeadLetteredMessagesTo = &q.ForwardTo, &q.ForwardDeadLettersTo
		s.RequiresSession = &q.RequiresSession
		s.DeadLetterTimeToLive = fromMillis(q.DeadLetterTimeToLive)
		s.RetryDelay, s.RetryDelayMax = fromMillis(q.RetryDelay), fromMillis(q.RetryDelayMax)
	}
	if kind != fsm.SubscriptionEntity {
		megabytes := uint32(q.MaxBytes >> 20)
		s.MaxMessageBytes = &q.MaxMessageBytes
		s.RequiresDuplicateDetection = &q.RequiresDuplicateDetection
		s.DuplicateDetectionHistoryTimeWindow = fromMillis(q.DuplicateWindow)
		s.MaxSizeInMegabytes = &megabytes
		s.EnablePartitioning = &q.EnablePartitioning
	}
	if kind == fsm.SubscriptionEntity {
		s.DeadLetteringOnFilterEvaluationExceptions = &q.DeadLetterOnFilterErrors
	}
	return s
}

// describe shows an entity as its kind is shown; counts may be nil.
func describe(e fsm.Entity, counts *fsm.Counts) any {
	switch e.Kind {
	case fsm.TopicEntity:
		return describeTopic(e, counts)
	case fsm.SubscriptionEntity:
		return describeSubscription(e, counts)
	case fsm.QueueEntity:
	}
	return describeQueue(e, counts)
}

func describeQueue(e fsm.Entity, counts *fsm.Counts) Queue {
	return Queue{
		Name: e.Name, Settings: describeSettings(fsm.QueueEntity, e.Settings), Partition: e.Partition, Version: e.Version,
		Created: toTime(e.Created), Updated: toTime(e.Updated), Counts: describeCounts(counts),
	}
}

func describeTopic(e fsm.Entity, counts *fsm.Counts) Topic {
	t := Topic{
		Name: e.Name, Settings: describeSettings(fsm.TopicEntity, e.Settings), Partition: e.Partition, Version: e.Version,
		Created: toTime(e.Created), Updated: toTime(e.Updated),
	}
	if counts != nil {
		t.Counts = &TopicCounts{Scheduled: counts.Scheduled, Bytes: counts.Bytes, Subscriptions: counts.Subscriptions}
	}
	return t
}

func describeSubscription(e fsm.Entity, counts *fsm.Counts) Subscription {
	topic, name, _ := fsm.SplitSubscriptionPath(e.Name)
	return Subscription{
		Name: e.Name, TopicName: topic, SubscriptionName: name,
		Settings: describeSettings(fsm.SubscriptionEntity, e.Settings), Partition: e.Partition, Version: e.Version,
		Created: toTime(e.Created), Updated: toTime(e.Updated), Counts: describeCounts(counts),
	}
}

func describeCounts(c *fsm.Counts) *Counts {
	if c == nil {
		return nil
	}
	return &Counts{
		Active: c.Active, Locked: c.Locked, Deferred: c.Deferred, Scheduled: c.Scheduled,
		DeadLetter: c.DeadLetter, Bytes: c.Bytes, Transfer: c.Transfer, TransferDeadLetter: c.TransferDeadLetter,
	}
}

// pageOf is the answer of a list; counts are nil where they were not asked for.
func pageOf(kind fsm.EntityKind, entities []fsm.Entity, counts []*fsm.Counts, next string) any {
	switch kind {
	case fsm.TopicEntity:
		return TopicPage{Topics: describeEach(entities, counts, describeTopic), Next: next}
	case fsm.SubscriptionEntity:
		return SubscriptionPage{Subscriptions: describeEach(entities, counts, describeSubscription), Next: next}
	case fsm.QueueEntity:
	}
	return QueuePage{Queues: describeEach(entities, counts, describeQueue), Next: next}
}

func describeEach[T any](entities []fsm.Entity, counts []*fsm.Counts, describe func(fsm.Entity, *fsm.Counts) T) []T {
	list := make([]T, len(entities))
	for i := range entities {
		list[i] = describe(entities[i], counts[i])
	}
	return list
}
