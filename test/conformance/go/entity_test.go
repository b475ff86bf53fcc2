package conformance

import (
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

// transferDeadLetters opens a receiver of what could not be forwarded.
func (s suite) transferDeadLetters(member int) *azservicebus.Receiver {
	s.Helper()
	return s.receiverWith(member, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer})
}

// topic makes a topic of the case's own, and is the case with that for its queue.
func (s suite) topic(more harness.Fields) suite {
	s.Helper()
	s.queue += ".topic"
	s.CreateTopic(s.T, s.queue, harness.Settings{More: more})
	return s
}

// subscription makes a subscription of the topic, and is the case with that for its queue.
// Without rules it takes everything.
func (s suite) subscription(name string, settings harness.Settings, rules ...harness.Rule) suite {
	s.Helper()
	s.CreateSubscription(s.T, s.queue, name, settings, rules...)
	s.queue = harness.SubscriptionPath(s.queue, name)
	return s
}

// another makes a queue of the case's own, and is the case with that for its queue. From
// is the one whose messages it is to get: it lies in another partition.
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

// partition is that of the queue or subscription of the case.
func (s suite) partition() uint32 {
	s.Helper()
	q, err := s.Members[0].Queue(s.ctx, s.queue)
	s.must("partition of "+s.queue, err)
	return q.Partition
}

// gets asserts that messages with these ids come, in this order, and completes them.
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

// notAllowed asserts the condition of what an entity is not for.
func (s suite) notAllowed(what string, err error) {
	s.Helper()
	if conditionOf(err) != string(amqp.ErrCondNotAllowed) {
		s.Errorf("%s: %v, want %s", what, err, amqp.ErrCondNotAllowed)
	}
}

// gone asserts that an entity is not found, in either way in which a client hears of it: a
// member that learns of a deletion a moment later than others says so at the link only.
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
