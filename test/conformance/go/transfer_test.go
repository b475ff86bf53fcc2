package conformance

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
)

func transferChecks() []check {
	return []check{
		{name: "destination goes", run: destinationIsDeleted},
		{name: "destination disabled", run: destinationDisabled},
		{name: "destination full", run: destinationFull},
		{name: "too large for the destination", run: tooLargeForDestination},
		{name: "failed forwarding of a subscription", run: failedForwardingOfSubscription},
		{name: "refused dead letters stay", run: refusedDeadLettersStay},
	}
}

// failed asserts that messages with these ids are dead letters with the given reason, and completes
// them.
func (s suite) failed(member int, reason string, want ...string) {
	s.Helper()
	s.counts(harness.Counts{DeadLetter: uint64(len(want))})
	r := s.deadLetters(member)
	for i, d := range s.receive(r, len(want)) {
		if d.MessageID != want[i] || d.DeadLetterReason == nil || *d.DeadLetterReason != reason || d.DeadLetterErrorDescription == nil || *d.DeadLetterErrorDescription == "" {
			s.Errorf("dead letter %s, reason %v, description %v; want %s, %s", d.MessageID, d.DeadLetterReason, d.DeadLetterErrorDescription, want[i], reason)
		}
		s.must("complete", r.CompleteMessage(s.ctx, d, nil))
	}
	s.counts(harness.Counts{})
}

// When the destination is deleted, messages become dead letters; a new destination
// with the same name gets later messages.
func destinationIsDeleted(s suite) {
	to := s.another("to", s, harness.Settings{})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	s.send(1)
	to.gets(2, "m1")
	s.DeleteQueue(s.T, to.queue)
	s.send(3)
	s.failed(3, "MessagingEntityNotFound", "m1", "m2", "m3")
	s.CreateQueue(s.T, to.queue, harness.Settings{})
	s.sendWith(0, "again")
	to.gets(2, "again")
}

// The destination has sending disabled.
func destinationDisabled(s suite) {
	to := s.another("to", s, harness.Settings{})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	for i, status := range []string{"SendDisabled", "Disabled"} {
		s.UpdateQueue(s.T, to.queue, harness.Fields{"status": status})
		s.send(2)
		s.failed(i+1, "MessagingEntityDisabled", "m1", "m2")
		s.UpdateQueue(s.T, to.queue, harness.Fields{"status": "Active"})
		s.send(1)
		to.gets(2, "m1")
	}
	s.UpdateQueue(s.T, to.queue, harness.Fields{"status": "ReceiveDisabled"})
	s.send(1)
	to.counts(harness.Counts{Active: 1})
}

// A full destination keeps the messages that it accepted, and the source keeps the rest.
func destinationFull(s suite) {
	to := s.another("to", s, harness.Settings{More: harness.Fields{"maxSizeInMegabytes": 1}})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	sender := s.sender(1)
	for i := range 7 {
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: ptr(fmt.Sprint(i)), Body: make([]byte, 200<<10)}, nil))
	}
	s.failed(2, "QuotaExceeded", "5", "6")
	to.counts(harness.Counts{Active: 5})
	to.gets(3, "0", "1", "2", "3", "4")
	s.send(1)
	to.gets(1, "m1")
}

// A message that the destination would refuse from a sender is dead-lettered; the messages around it are forwarded.
func tooLargeForDestination(s suite) {
	to := s.another("to", s, harness.Settings{More: harness.Fields{"maxMessageBytes": 4096}})
	sender := s.sender(1)
	for i, size := range []int{100, 5000, 200, 6000, 300} {
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: ptr(fmt.Sprint(i)), Body: make([]byte, size)}, nil))
	}
	s.counts(harness.Counts{Active: 5})
	s.UpdateQueue(s.T, s.queue, forwardingTo(to))
	s.failed(2, "MessageSizeExceeded", "1", "3")
	to.gets(3, "0", "2", "4")
}

// The copies of one subscription fail alone: its topic and the other subscriptions are not affected.
func failedForwardingOfSubscription(s suite) {
	topic := s.topic(nil)
	from := topic.subscription("from", harness.Settings{More: forwardingTo(s)})
	beside := topic.subscription("beside", harness.Settings{})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "SendDisabled"})
	topic.send(2)
	from.failed(2, "MessagingEntityDisabled", "m1", "m2")
	beside.gets(3, "m1", "m2")
	s.counts(harness.Counts{})
}

// Dead letters that cannot be forwarded stay, and are forwarded with their own reason once the destination accepts them.
// Messages that could not be forwarded are beside them, and can be browsed and settled like others.
func refusedDeadLettersStay(s suite) {
	to := s.another("to", s, harness.Settings{More: harness.Fields{"status": "SendDisabled"}})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardDeadLetteredMessagesTo": to.queue})
	s.send(2)
	r := s.receiver(1)
	for _, m := range s.receive(r, 2) {
		s.must("dead-letter", r.DeadLetterMessage(s.ctx, m, &azservicebus.DeadLetterOptions{Reason: ptr("why")}))
	}
	s.counts(harness.Counts{Transfer: 2})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardTo": to.queue})
	s.sendWith(0, "failed 1", "failed 2")
	s.counts(harness.Counts{DeadLetter: 2, Transfer: 2})
	dead := s.deadLetters(2)
	held := s.receive(dead, 2)
	s.must("abandon", dead.AbandonMessage(s.ctx, held[0], nil))
	s.must("complete by token", s.deadLetters(3).CompleteMessage(s.ctx, byToken(held[1]), nil))
	again := s.receiveOne(dead)
	if again.MessageID != "failed 1" || again.DeliveryCount != 1 { // only the main queue counts
		s.Errorf("abandoned came %s, delivery count %d", again.MessageID, again.DeliveryCount)
	}
	s.must("complete", dead.CompleteMessage(s.ctx, again, nil))
	s.UpdateQueue(s.T, to.queue, harness.Fields{"status": "Active"})
	to.gets(3, "m1", "m2")
	s.counts(harness.Counts{})
}
