package conformance

import (
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

// topic creates a topic for the case, and returns the suite with it as the queue.
func (s suite) topic(more harness.Fields) suite {
	s.Helper()
	s.queue += ".topic"
	s.CreateTopic(s.T, s.queue, harness.Settings{More: more})
	return s
}

// subscription creates a subscription of the topic, and returns the suite with it as the queue.
// Without rules, the subscription matches all messages.
func (s suite) subscription(name string, settings harness.Settings, rules ...harness.Rule) suite {
	s.Helper()
	s.CreateSubscription(s.T, s.queue, name, settings, rules...)
	s.queue = harness.SubscriptionPath(s.queue, name)
	return s
}

// another creates a queue for the case, and returns the suite with it as the queue. from is the
// queue whose messages it is to get: the new queue is in another partition.
func (s suite) another(name string, from suite, settings harness.Settings) suite {
	s.Helper()
	name = s.queue + "." + name
	for i := 0; ; i++ {
		s.queue = fmt.Sprintf("%s.%d", name, i)
		s.CreateQueue(s.T, s.queue, settings)
		if s.partition() != from.partition() {
			return s
		}
	}
}

// partition returns the partition of the queue or subscription of the case.
func (s suite) partition() uint32 {
	s.Helper()
	q, err := s.Members[0].Queue(s.ctx, s.queue)
	s.must("partition of "+s.queue, err)
	return q.Partition
}

// gets asserts that messages with these ids arrive in this order, and completes them.
func (s suite) gets(member int, want ...string) []*azservicebus.ReceivedMessage {
	s.Helper()
	r := s.receiver(member)
	got := s.receive(r, len(want))
	if diff := cmp.Diff(want, ids(got)); diff != "" {
		s.Errorf("received from %s (-want +got)\n%s", s.queue, diff)
	}
	for _, m := range got {
		s.must("complete", r.CompleteMessage(s.ctx, m, nil))
	}
	s.counts(harness.Counts{})
	return got
}

// notAllowed asserts the condition for an operation that an entity does not support.
func (s suite) notAllowed(what string, err error) {
	s.Helper()
	if conditionOf(err) != string(amqp.ErrCondNotAllowed) {
		s.Errorf("%s: %v, want %s", what, err, amqp.ErrCondNotAllowed)
	}
}

// gone asserts that an entity is not found, in either form in which a client learns of it: a
// member that learns of a deletion slightly later than others reports it only on the link.
func (s suite) gone(what string, err error) {
	s.Helper()
	known := (*azservicebus.Error)(nil)
	if errors.As(err, &known) && known.Code == azservicebus.CodeNotFound {
		return
	}
	if conditionOf(err) != string(amqp.ErrCondNotFound) {
		s.Errorf("%s: %v, want that it is not found", what, err)
	}
}
