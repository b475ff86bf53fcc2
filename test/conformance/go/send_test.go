package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/test/harness"
)

func sendChecks() []check {
	return []check{
		{name: "thousand", settings: harness.Settings{LockDuration: lockLong}, run: thousand},
		{name: "whole batch", run: wholeBatch},
		{name: "properties", run: properties},
		{name: "bodies", run: bodies},
		{name: "annotations", run: annotations},
		{name: "sizes", run: sizes},
		{name: "peek", run: peek},
		{name: "unknown queue", run: unknownQueue},
		{name: "wrong key", run: wrongKey},
		{name: "case of names", run: caseOfNames},
	}
}

// A thousand messages, half of them as single concurrent sends, half in batches, go to
// member 1; receivers at members 2 and 3 compete for them and complete them. Each
// message is received once, whole (docs/requirements.md#t1, #t2, #t5, #t9, #c1, #c9).
func thousand(s suite) {
	const all, single, lanes, perBatch, perCall = 1000, 500, 20, 100, 50
	sender := s.sender(1)
	want := map[string]bool{}
	message := func(n int) *azservicebus.Message {
		return &azservicebus.Message{
			MessageID:             ptr(strconv.Itoa(n)),
			Body:                  []byte(strings.Repeat(strconv.Itoa(n)+" ", 50)),
			ApplicationProperties: map[string]any{"number": int64(n)},
		}
	}
	for n := range all {
		want[strconv.Itoa(n)] = true
	}
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for n := lane; n < single; n += lanes {
				if err := sender.SendMessage(s.ctx, message(n), nil); err != nil {
					s.Errorf("send %d: %v", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for from := single; from < all; from += perBatch {
		batch, err := sender.NewMessageBatch(s.ctx, nil)
		s.must("new batch", err)
		for n := from; n < from+perBatch; n++ {
			s.must("add to batch", batch.AddMessage(message(n), nil))
		}
		s.must("send batch", sender.SendMessageBatch(s.ctx, batch, nil))
	}
	s.counts(harness.Counts{Active: all})

	var mu sync.Mutex
	got := map[string]int{}
	ctx, done := context.WithCancel(s.ctx)
	defer done()
	for _, member := range []int{2, 3, 2, 3} {
		r := s.receiver(member)
		wg.Go(func() {
			for ctx.Err() == nil {
				messages, err := r.ReceiveMessages(ctx, perCall, nil)
				if err != nil && ctx.Err() == nil {
					s.Errorf("receive at member %d: %v", member, err)
					return
				}
				for _, m := range messages {
					n, _ := m.ApplicationProperties["number"].(int64)
					if body := strings.Repeat(m.MessageID+" ", 50); string(m.Body) != body || strconv.FormatInt(n, 10) != m.MessageID {
						s.Errorf("message %s came changed", m.MessageID)
					}
					if err := r.CompleteMessage(s.ctx, m, nil); err != nil {
						s.Errorf("complete %s at member %d: %v", m.MessageID, member, err)
					}
					mu.Lock()
					got[m.MessageID]++
					if len(got) == all {
						done()
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for id := range maps.Keys(want) {
		if got[id] != 1 {
			s.Errorf("message %s was received %d times", id, got[id])
		}
	}
	s.counts(harness.Counts{})
	s.nothing(s.receiver(1))
}

// The messages of a batch keep their order and their own properties.
func wholeBatch(s suite) {
	sender := s.sender(1)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	var want []string
	for i := range 20 {
		id := fmt.Sprintf("b%02d", i)
		want = append(want, id)
		s.must("add", batch.AddMessage(&azservicebus.Message{MessageID: &id, Subject: ptr("subject of " + id)}, nil))
	}
	s.must("send batch", sender.SendMessageBatch(s.ctx, batch, nil))
	got := s.receive(s.receiver(3), len(want))
	if diff := cmp.Diff(want, ids(got)); diff != "" {
		s.Errorf("order (-want +got)\n%s", diff)
	}
	for _, m := range got {
		if m.Subject == nil || *m.Subject != "subject of "+m.MessageID {
			s.Errorf("message %s has subject %v", m.MessageID, m.Subject)
		}
	}
}

// Receivers get the properties of a message as the sender set them (docs/requirements.md#t15: including the message id).
func properties(s suite) {
	sent := &azservicebus.Message{
		MessageID:        ptr("the id"),
		Body:             []byte("the body"),
		ContentType:      ptr("text/plain"),
		CorrelationID:    ptr("the correlation"),
		Subject:          ptr("the subject"),
		To:               ptr("the destination"),
		ReplyTo:          ptr("the reply queue"),
		ReplyToSessionID: ptr("the reply session"),
		PartitionKey:     ptr("the key"),
		TimeToLive:       ptr(time.Hour),
		ApplicationProperties: map[string]any{
			"string": "text", "empty": "", "int32": int32(-32), "int64": int64(1 << 40), "float": 1.5,
			"yes": true, "no": false, "uint8": uint8(8), "time": time.UnixMilli(1_700_000_000_123).UTC(),
			"binary": []byte{0, 1, 2}, "null": nil,
		},
	}
	s.must("send", s.sender(1).SendMessage(s.ctx, sent, nil))
	got := s.receiveOne(s.receiver(2))
	want := sent.ApplicationProperties
	if diff := cmp.Diff(want, got.ApplicationProperties); diff != "" {
		s.Errorf("application properties (-want +got)\n%s", diff)
	}
	back := got.Message()
	back.ApplicationProperties, sent.ApplicationProperties = nil, nil
	if diff := cmp.Diff(sent, back); diff != "" {
		s.Errorf("message (-want +got)\n%s", diff)
	}
	if got.MessageID != *sent.MessageID {
		s.Errorf("message id %q", got.MessageID)
	}
}

// All three kinds of body arrive unchanged, including several data sections.
func bodies(s suite) {
	sender, r := s.sender(1), s.receiver(2)
	for name, body := range map[string]azservicebus.AMQPAnnotatedMessageBody{
		"data":     {Data: [][]byte{[]byte("one"), {}, []byte("three")}},
		"value":    {Value: map[string]any{"k": "v"}},
		"text":     {Value: "text"},
		"sequence": {Sequence: [][]any{{"a", int64(1)}, {true}}},
	} {
		s.must("send "+name, sender.SendAMQPAnnotatedMessage(s.ctx, &azservicebus.AMQPAnnotatedMessage{
			Body:   body,
			Footer: map[any]any{"foot": "note"},
		}, nil))
		got := s.receiveOne(r)
		if diff := cmp.Diff(body, got.RawAMQPMessage.Body); diff != "" {
			s.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		if got.RawAMQPMessage.Footer["foot"] != "note" {
			s.Errorf("%s: footer %v", name, got.RawAMQPMessage.Footer)
		}
		s.must("complete "+name, r.CompleteMessage(s.ctx, got, nil))
	}
}

// The broker's own annotations are present with their types, forged ones from the client are
// dropped, and other annotations arrive unchanged.
func annotations(s suite) {
	const sends = 3
	sender := s.sender(1)
	before := time.Now().Add(-time.Second)
	for range sends {
		s.must("send", sender.SendAMQPAnnotatedMessage(s.ctx, &azservicebus.AMQPAnnotatedMessage{
			Body: azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("x")}},
			MessageAnnotations: map[any]any{
				"x-opt-sequence-number": int64(77), "x-opt-enqueued-time": time.Unix(0, 0), "x-opt-mine": "kept",
			},
		}, nil))
	}
	for i, m := range s.receive(s.receiver(3), sends) {
		a := m.RawAMQPMessage.MessageAnnotations
		sequence, ok := a["x-opt-sequence-number"].(int64)
		if !ok || sequence != int64(i+1) || m.SequenceNumber == nil || *m.SequenceNumber != sequence {
			s.Errorf("sequence number %v (%T), want %d", a["x-opt-sequence-number"], a["x-opt-sequence-number"], i+1)
		}
		enqueued, ok := a["x-opt-enqueued-time"].(time.Time)
		if !ok || enqueued.Before(before) || enqueued.After(time.Now().Add(time.Second)) {
			s.Errorf("enqueued time %v", a["x-opt-enqueued-time"])
		}
		until, ok := a["x-opt-locked-until"].(time.Time)
		if left := time.Until(until); !ok || left < 10*time.Second || left > 31*time.Second {
			s.Errorf("locked until %v, with the default of 30 s", a["x-opt-locked-until"])
		}
		if a["x-opt-mine"] != "kept" {
			s.Errorf("a client's own annotation became %v", a["x-opt-mine"])
		}
		if m.DeliveryCount != 1 || m.State != azservicebus.MessageStateActive {
			s.Errorf("first delivery has count %d and state %v", m.DeliveryCount, m.State)
		}
		if m.LockToken == [16]byte{} {
			s.Error("no lock token")
		}
	}
}

// A message of many frames arrives whole; a message above the limit fails with the
// client's own error, before or after it is sent.
func sizes(s suite) {
	const largest = 255 * 1024 // the limit is 256 KiB with all sections
	sender, r := s.sender(1), s.receiver(2)
	for _, size := range []int{0, 1, 65_000, 65_536, 131_072, largest} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil))
		got := s.receiveOne(r)
		if !bytes.Equal(got.Body, body) {
			s.Errorf("a body of %d bytes came back changed, with %d bytes", size, len(got.Body))
		}
		s.must("complete", r.CompleteMessage(s.ctx, got, nil))
	}
	err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 300*1024)}, nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		s.Errorf("300 KiB: %v, want ErrMessageTooLarge", err)
	}
	s.must("send after the refusal", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("small")}, nil))
	if got := s.receiveOne(r); string(got.Body) != "small" {
		s.Errorf("after the refusal came %q", got.Body)
	}
}

// Peek returns messages in order, including locked and deferred ones, from any number on,
// without locking them or counting an attempt.
func peek(s suite) {
	const n = 5
	s.send(n)
	r := s.receiver(2)
	locked := s.receive(r, 2)
	s.must("defer", r.DeferMessage(s.ctx, locked[1], nil))

	peeker := s.receiver(3)
	first, err := peeker.PeekMessages(s.ctx, 3, nil)
	s.must("peek", err)
	rest, err := peeker.PeekMessages(s.ctx, 10, nil)
	s.must("peek on", err)
	if diff := cmp.Diff([]string{"m1", "m2", "m3", "m4", "m5"}, ids(slices.Concat(first, rest))); diff != "" {
		s.Errorf("peeked (-want +got)\n%s", diff)
	}
	if state := first[1].State; state != azservicebus.MessageStateDeferred {
		s.Errorf("the deferred message is peeked in state %v", state)
	}
	from, err := peeker.PeekMessages(s.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: ptr(int64(4))})
	s.must("peek from 4", err)
	if diff := cmp.Diff([]string{"m4"}, ids(from)); diff != "" {
		s.Errorf("peeked from 4 (-want +got)\n%s", diff)
	}
	none, err := peeker.PeekMessages(s.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: ptr(int64(100))})
	if err != nil || len(none) != 0 {
		s.Errorf("peek behind the end: %v, %v", ids(none), err)
	}
	for _, m := range s.receive(r, 3) {
		if m.DeliveryCount != 1 {
			s.Errorf("peeking counted as a delivery of %s", m.MessageID)
		}
	}
}

// A queue that does not exist is reported immediately, with the code for it.
func unknownQueue(s suite) {
	client := s.client(2)
	sender, err := client.NewSender("no-such-queue", nil)
	s.must("new sender", err)
	wantCode(s, "send", sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), azservicebus.CodeNotFound)
	r, err := client.NewReceiverForQueue("no-such-queue", nil)
	s.must("new receiver", err)
	_, err = r.ReceiveMessages(s.ctx, 1, nil)
	wantCode(s, "receive", err, azservicebus.CodeNotFound)
}

// A wrong key is refused.
func wrongKey(s suite) {
	wrong := strings.Replace(s.Members[0].ConnectionString(), harness.Key, "not the key", 1)
	client, err := azservicebus.NewClientFromConnectionString(wrong, nil)
	s.must("new client", err)
	defer func() { _ = client.Close(context.Background()) }()
	sender, err := client.NewSender(s.queue, nil)
	s.must("new sender", err)
	wantCode(s, "send", sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), azservicebus.CodeUnauthorizedAccess)
	s.counts(harness.Counts{})
}

// Names are compared case-insensitively.
func caseOfNames(s suite) {
	s.send(1)
	r, err := s.client(2).NewReceiverForQueue(strings.ToUpper(s.queue), nil)
	s.must("new receiver", err)
	if m := s.receiveOne(r); m.MessageID != "m1" {
		s.Errorf("received %s", m.MessageID)
	}
}

// wantCode asserts the SDK's code of an error.
func wantCode(s suite, what string, err error, want azservicebus.Code) {
	s.Helper()
	var coded *azservicebus.Error
	if !errors.As(err, &coded) || coded.Code != want {
		s.Errorf("%s: %v, want code %s", what, err, want)
	}
}
