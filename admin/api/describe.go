package api

import (
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Describe returns the JSON form of an entity; counts may be nil.
func Describe(e fsm.Entity, counts *fsm.Counts) any {
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
		Name: e.Name, Settings: entity.DescribeSettings(fsm.QueueEntity, e.Settings), Partition: e.Partition, Version: e.Version,
		Created: ToTime(e.Created), Updated: ToTime(e.Updated), Counts: describeCounts(counts),
	}
}

func describeTopic(e fsm.Entity, counts *fsm.Counts) Topic {
	t := Topic{
		Name: e.Name, Settings: entity.DescribeSettings(fsm.TopicEntity, e.Settings), Partition: e.Partition, Version: e.Version,
		Created: ToTime(e.Created), Updated: ToTime(e.Updated),
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
		Settings: entity.DescribeSettings(fsm.SubscriptionEntity, e.Settings), Partition: e.Partition, Version: e.Version,
		Created: ToTime(e.Created), Updated: ToTime(e.Updated), Counts: describeCounts(counts),
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

// PageOf is the answer of a list; counts are nil where the request has not asked for them.
func PageOf(kind fsm.EntityKind, entities []fsm.Entity, counts []*fsm.Counts, next string) any {
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

// ToTime returns a time of the state machine in UTC.
func ToTime(t fsm.Instant) time.Time { return time.UnixMilli(int64(t)).UTC() }
