package conformance

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
)

func transferChecks() []check {
	return []check{
		{name: "destination goes", run: destinationIsDeleted},
		{name: "destination disabled", run: destinationDisabled},
		{name: "destination full", run: destinationFull},
		{name: "too large for the destination", run: tooLargeForDestination},
		{name: "transfer dead letters of a subscription", run: transferDeadLettersOfSubscription},
		{name: "transfer dead letters of dead letters", run: transferDeadLettersOfDeadLetters},
	}
}

// failed asserts that messages with these ids are transfer dead letters with the given reason,
// completes them, and returns them.
func (s suite) failed(member int, reason string, want ...string) {
	s.Helper()
	s.counts(harness.Counts{TransferDeadLetter: uint64(len(want))})
	r := s.transferDeadLetters(member)
	for i, d := range s.receive(r, len(want)) {
		if d.MessageID != want[i] || d.DeadLetterReason == nil || *d.DeadLetterReason != reason || d.DeadLetterErrorDescription == nil || *d.DeadLetterErrorDescription == "" {
			s.Errorf("transfer dead letter %s, reason %v, description %v; want %s, %s", d.MessageID, d.DeadLetterReason, d.DeadLetterErrorDescription, want[i], reason)
		}
		s.must("complete", r.CompleteMessage(s.ctx, d, nil))
	}
	s.counts(harness.Counts{})
}

// When the destination is deleted, messages become transfer dead letters; a new destination
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
func transferDeadLettersOfSubscription(s suite) {
	topic := s.topic(nil)
	from := topic.subscription("from", harness.Settings{More: forwardingTo(s)})
	beside := topic.subscription("beside", harness.Settings{})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "SendDisabled"})
	topic.send(2)
	from.failed(2, "MessagingEntityDisabled", "m1", "m2")
	beside.gets(3, "m1", "m2")
	s.counts(harness.Counts{})
}

// Dead letters that cannot be forwarded become transfer dead letters and keep their own
// reason until then. They can be browsed, also with the command line, and settled like others.
func transferDeadLettersOfDeadLetters(s suite) {
	to := s.another("to", s, harness.Settings{More: harness.Fields{"status": "SendDisabled"}})
	s.UpdateQueue(s.T, s.queue, harness.Fields{"forwardDeadLetteredMessagesTo": to.queue})
	s.send(2)
	r := s.receiver(1)
	for _, m := range s.receive(r, 2) {
		s.must("dead-letter", r.DeadLetterMessage(s.ctx, m, &azservicebus.DeadLetterOptions{Reason: ptr("why")}))
	}
	s.counts(harness.Counts{TransferDeadLetter: 2})
	peeked, err := s.transferDeadLetters(3).PeekMessages(s.ctx, 10, nil)
	s.must("peek", err)
	if len(peeked) != 2 || !strings.HasPrefix(string(peeked[0].Body), "body of m1") {
		s.Errorf("peeked %v", ids(peeked))
	}
	rt := s.transferDeadLetters(2)
	held := s.receive(rt, 2)
	s.must("abandon", rt.AbandonMessage(s.ctx, held[0], nil))
	s.must("complete by token", s.transferDeadLetters(3).CompleteMessage(s.ctx, byToken(held[1]), nil))
	if again := s.receiveOne(rt); again.MessageID != "m1" || again.DeliveryCount != 1 { // only the main queue counts
		s.Errorf("abandoned came %s, delivery count %d", again.MessageID, again.DeliveryCount)
	}
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	if got, _ := s.deadLetters(1).ReceiveMessages(ctx, 1, nil); len(got) != 0 {
		s.Errorf("%s came from the dead-letter queue", got[0].MessageID)
	}
	s.counts(harness.Counts{TransferDeadLetter: 1})
}
