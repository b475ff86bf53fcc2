package conformance

import (
	"bytes"
	"errors"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

// plainChecks are the cases of a program that knows AMQP 1.0 and nothing of the service.
func plainChecks() []check {
	return []check{
		{name: "quickstart", run: plainQuickstart},
		{name: "content", run: plainContent},
		{name: "large", run: plainLarge},
		{name: "taken", run: plainReceiveAndDelete},
		{name: "settlements", run: plainSettlements},
		{name: "schedule", run: plainSchedule},
		{name: "duplicates", settings: harness.Settings{More: harness.Fields{"requiresDuplicateDetection": true}}, run: plainDuplicates},
		{name: "topic", run: plainTopic},
	}
}

// plainQuickstart is the program of the client's manual.
func plainQuickstart(s suite) {
	conn, err := amqp.Dial(s.ctx, "amqp://"+s.Members[0].AMQP, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(harness.KeyName, harness.Key),
	})
	s.must("dial", err)
	defer func() { _ = conn.Close() }()
	session, err := conn.NewSession(s.ctx, nil)
	s.must("session", err)
	sender, err := session.NewSender(s.ctx, "/"+s.queue, nil)
	s.must("sender", err)
	s.must("send", sender.Send(s.ctx, amqp.NewMessage([]byte("Hello!")), nil))
	s.must("close", sender.Close(s.ctx))
	receiver, err := session.NewReceiver(s.ctx, "/"+s.queue, nil)
	s.must("receiver", err)
	message, err := receiver.Receive(s.ctx, nil)
	s.must("receive", err)
	s.must("accept", receiver.AcceptMessage(s.ctx, message))
	if string(message.GetData()) != "Hello!" {
		s.Errorf("received %q", message.GetData())
	}
	s.counts(harness.Counts{})
}

// Properties keep their types; value and sequence bodies keep their form.
func plainContent(s suite) {
	sender, r := s.amqpSender(1, nil), s.amqpReceiver(3, nil)
	m := &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: "id", Subject: ptr("subject"), CorrelationID: uint64(7)},
		ApplicationProperties: map[string]any{"text": "t", "number": int64(-3), "byte": uint8(200), "when": time.UnixMilli(1_700_000_000_123).UTC()},
		Value:                 map[string]any{"a": int32(1)},
	}
	s.must("send a value", sender.Send(s.ctx, m, nil))
	got := s.get(r)
	s.same("properties", m.ApplicationProperties, got.ApplicationProperties)
	s.same("value", m.Value, got.Value)
	if got.Properties.MessageID != "id" || *got.Properties.Subject != "subject" || got.Properties.CorrelationID != uint64(7) {
		s.Errorf("properties %+v", got.Properties)
	}
	s.must("accept", r.AcceptMessage(s.ctx, got))
	s.must("send a sequence", sender.Send(s.ctx, &amqp.Message{Sequence: [][]any{{"one", int64(2)}}}, nil))
	s.same("sequence", [][]any{{"one", int64(2)}}, s.get(r).Sequence)
}

// A message may have the maximum size of the link, and no more.
func plainLarge(s suite) {
	sender, r := s.amqpSender(1, nil), s.amqpReceiver(2, nil)
	limit := sender.MaxMessageSize()
	if limit == 0 {
		s.Fatal("the link names no limit")
	}
	body := bytes.Repeat([]byte("x"), int(limit)-100)
	s.must("send", sender.Send(s.ctx, amqp.NewMessage(body), nil))
	m := s.get(r)
	if !bytes.Equal(body, m.GetData()) {
		s.Errorf("a body of %d bytes came back changed", len(body))
	}
	s.must("accept", r.AcceptMessage(s.ctx, m))
	var remote *amqp.Error
	err := sender.Send(s.ctx, amqp.NewMessage(make([]byte, limit+1)), nil)
	if !errors.As(err, &remote) || remote.Condition != amqp.ErrCondMessageSizeExceeded {
		s.Errorf("one byte too many: %v", err)
	}
	s.must("send after it", sender.Send(s.ctx, text("small"), nil))
	if m := s.get(r); string(m.GetData()) != "small" {
		s.Errorf("after the refusal came %q", m.GetData())
	}
}

// A message that is settled when it is sent is removed.
func plainReceiveAndDelete(s suite) {
	s.must("send", s.amqpSender(1, nil).Send(s.ctx, text("x"), nil))
	r := s.amqpReceiver(2, &amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(), SettlementMode: amqp.ReceiverSettleModeFirst.Ptr()})
	if m := s.get(r); string(m.GetData()) != "x" {
		s.Errorf("received %q", m.GetData())
	}
	s.counts(harness.Counts{})
}

// Each outcome has the effect that the service documents; a dead letter keeps its reason.
func plainSettlements(s suite) {
	sender, r := s.amqpSender(1, nil), s.amqpReceiver(2, &amqp.ReceiverOptions{Credit: 10})
	for _, name := range []string{"accept", "release", "reject", "aside"} {
		s.must("send", sender.Send(s.ctx, text("%s", name), nil))
	}
	s.must("accept", r.AcceptMessage(s.ctx, s.get(r)))
	released := s.get(r)
	s.must("reject", r.RejectMessage(s.ctx, s.get(r), &amqp.Error{Condition: "com.microsoft:dead-letter", Info: map[string]any{
		"DeadLetterReason": "why", "DeadLetterErrorDescription": "because",
	}}))
	s.must("set aside", r.ModifyMessage(s.ctx, s.get(r), &amqp.ModifyMessageOptions{UndeliverableHere: true}))
	s.must("release", r.ReleaseMessage(s.ctx, released))
	if m := s.get(r); string(m.GetData()) != "release" {
		s.Errorf("after its release came %q", m.GetData())
	}
	s.counts(harness.Counts{Active: 1, Locked: 1, Deferred: 1, DeadLetter: 1})
	dead, err := s.session(3).NewReceiver(s.ctx, s.queue+"/$DeadLetterQueue", nil)
	s.must("receiver of dead letters", err)
	if m := s.get(dead); m.ApplicationProperties["DeadLetterReason"] != "why" || m.ApplicationProperties["DeadLetterErrorDescription"] != "because" {
		s.Errorf("the dead letter says %v", m.ApplicationProperties)
	}
}

// An annotation schedules a message.
func plainSchedule(s suite) {
	due := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	m := text("later")
	m.Annotations = amqp.Annotations{"x-opt-scheduled-enqueue-time": due}
	s.must("send", s.amqpSender(1, nil).Send(s.ctx, m, nil))
	s.get(s.amqpReceiver(2, nil))
	s.notBefore("it", due, time.Now())
}

// The second message with an id is accepted and dropped.
func plainDuplicates(s suite) {
	for member := range 2 {
		m := text("from member %d", member+1)
		m.Properties = &amqp.MessageProperties{MessageID: "same"}
		s.must("send", s.amqpSender(member+1, nil).Send(s.ctx, m, nil))
	}
	s.counts(harness.Counts{Active: 1})
}

// The address of a topic is for sending, the addresses of its subscriptions are for receiving.
func plainTopic(s suite) {
	topic := s.topic(nil)
	a, b := topic.subscription("a", harness.Settings{}), topic.subscription("b", harness.Settings{})
	s.must("send", topic.amqpSender(1, nil).Send(s.ctx, text("to both"), nil))
	for _, at := range []suite{a, b} {
		r := at.amqpReceiver(2, nil)
		s.must("accept", r.AcceptMessage(s.ctx, s.get(r)))
		at.counts(harness.Counts{})
	}
}
