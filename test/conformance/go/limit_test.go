package conformance

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

// batchMessagesMax is the maximum number of messages in one batch.
const batchMessagesMax = 4500

func limitChecks() []check {
	return []check{
		{name: "message size", settings: harness.Settings{More: harness.Fields{"maxMessageBytes": 4096}}, run: messageSize},
		{name: "message size lowered", run: messageSizeLowered},
		{name: "quota", settings: harness.Settings{More: harness.Fields{"maxSizeInMegabytes": 1}}, run: quota},
		{name: "quota and duplicates", settings: harness.Settings{More: harness.Fields{"maxSizeInMegabytes": 1, "requiresDuplicateDetection": true}}, run: quotaAndDuplicates},
		{name: "batch", run: batchLimits},
		{name: "property sizes", run: propertySizes},
		{name: "names", run: names},
		{name: "settings", run: settingsRefused},
		{name: "tracking id", run: trackingID},
	}
}

// alive asserts that a refused sender can still send over the same link.
func alive(s suite, sender *azservicebus.Sender) {
	s.Helper()
	s.must("send after a refusal", sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("small")}, nil))
}

// A link announces the maximum message size; a larger message fails with the SDK's own
// error, and the sender stays usable.
func messageSize(s suite) {
	link := s.amqpSender(3, nil)
	if got := link.MaxMessageSize(); got != 4096 {
		s.Errorf("the link says %d bytes at most, the queue 4096", got)
	}
	sender := s.sender(1)
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 5000)}, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		s.Errorf("5000 bytes: %v, want ErrMessageTooLarge", err)
	}
	alive(s, sender)
	s.must("largest", sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 4000)}, nil))
	s.counts(harness.Counts{Active: 2})
}

// A limit that is lowered while a link is open applies to that link too: here the member
// refuses the message.
func messageSizeLowered(s suite) {
	sender := s.sender(1)
	s.must("large", sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 5000)}, nil))
	s.UpdateQueue(s.T, s.queue, harness.Fields{"maxMessageBytes": 4096})
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 5000)}, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		s.Errorf("5000 bytes: %v, want ErrMessageTooLarge", err)
	}
	alive(s, sender)
	s.counts(harness.Counts{Active: 2})
}

// A full queue refuses sends, single or in batches, as a whole; the client's link stays, and
// receiving frees space.
func quota(s suite) {
	sender, r := s.sender(1), s.receiver(2)
	body := make([]byte, 200<<10)
	stored := 0
	var err error
	for err == nil && stored < 6 {
		if err = sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil); err == nil {
			stored++
		}
	}
	if stored != 5 || conditionOf(err) != string(amqp.ErrCondResourceLimitExceeded) {
		s.Fatalf("after %d messages of 200 KiB in 1 MiB: %v, want %s", stored, err, amqp.ErrCondResourceLimitExceeded)
	}
	small := make([]byte, 30<<10)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must("new batch", err)
	for range 2 { // one alone would fit
		s.must("add", batch.AddMessage(&azservicebus.Message{Body: small}, nil))
	}
	err = sender.SendMessageBatch(s.ctx, batch, nil)
	if conditionOf(err) != string(amqp.ErrCondResourceLimitExceeded) {
		s.Errorf("a batch that does not fit: %v", err)
	}
	s.counts(harness.Counts{Active: 5})
	alive(s, sender)
	m := s.receiveOne(r)
	s.must("dead-letter", r.DeadLetterMessage(s.ctx, m, nil)) // frees no space
	if err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil); err == nil {
		s.Error("dead letters do not count against the quota")
	}
	s.must("complete", r.CompleteMessage(s.ctx, s.receiveOne(r), nil))
	s.must("send below the quota again", sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil))
	s.UpdateQueue(s.T, s.queue, harness.Fields{"maxSizeInMegabytes": 2})
	s.must("send when the quota is raised", sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil))
}

// A message refused because of the quota is not stored, so its id is not remembered either.
func quotaAndDuplicates(s suite) {
	sender, r := s.sender(1), s.receiver(2)
	body := make([]byte, 250<<10)
	for _, id := range []string{"1", "2", "3", "4"} {
		s.must("send", sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &id, Body: body}, nil))
	}
	refused := &azservicebus.Message{MessageID: ptr("refused"), Body: body}
	if err := sender.SendMessage(s.ctx, refused, nil); conditionOf(err) != string(amqp.ErrCondResourceLimitExceeded) {
		s.Errorf("beyond the quota: %v", err)
	}
	s.must("complete", r.CompleteMessage(s.ctx, s.receiveOne(r), nil))
	s.must("send again", sender.SendMessage(s.ctx, refused, nil))
	s.counts(harness.Counts{Active: 4})
}

// A batch with too many messages is refused as a whole; a batch with the maximum number is not.
func batchLimits(s suite) {
	one, err := amqp.NewMessage([]byte("x")).MarshalBinary()
	s.must("encode", err)
	batch := func(n int) *amqp.Message {
		m := &amqp.Message{Format: batchFormat}
		for range n {
			m.Data = append(m.Data, one)
		}
		return m
	}
	sender := s.amqpSender(2, nil)
	if err := sender.Send(s.ctx, batch(batchMessagesMax+1), nil); conditionOf(err) == "" {
		s.Errorf("a batch of %d messages was accepted", batchMessagesMax+1)
	}
	s.must("largest batch", sender.Send(s.ctx, batch(batchMessagesMax), nil))
	s.counts(harness.Counts{Active: batchMessagesMax})
}

// A property may have 32 KiB, all properties 64 KiB; larger ones are refused, and the sender stays usable.
func propertySizes(s suite) {
	sender := s.sender(1)
	send := func(sizes ...int) error {
		properties := map[string]any{}
		for i, size := range sizes {
			properties[string(rune('a'+i))] = strings.Repeat("x", size)
		}
		return sender.SendMessage(s.ctx, &azservicebus.Message{ApplicationProperties: properties}, nil)
	}
	s.must("20 and 20 KiB", send(20<<10, 20<<10))
	for what, sizes := range map[string][]int{"40 KiB in one": {40 << 10}, "80 KiB in all": {20 << 10, 20 << 10, 20 << 10, 20 << 10}} {
		if err := send(sizes...); conditionOf(err) == "" || strings.Contains(conditionOf(err), "connection") {
			s.Errorf("%s: %v", what, err)
		}
		alive(s, sender)
	}
	s.counts(harness.Counts{Active: 3})
}

// Invalid queue names are refused when queues are created, and not found when
// clients use them.
func names(s suite) {
	for _, name := range []string{"-a", "a%2F%2Fb", "a b", "a%23b", "a%3Fb", "ä", strings.Repeat("x", 261)} {
		if err := s.Members[0].Call(s.ctx, http.MethodPut, "/v1/queues/"+strings.ReplaceAll(name, " ", "%20"), harness.Fields{}, nil); err == nil || !strings.Contains(err.Error(), " 400 ") {
			s.Errorf("queue %.20q: %v, want a refusal with 400", name, err)
		}
	}
	longest := "limits/" + strings.Repeat("x", 260-len("limits/"))
	s.must("longest name", s.Members[0].Call(s.ctx, http.MethodPut, "/v1/queues/"+longest, harness.Fields{}, nil))
	s.queue = longest
	s.send(1)
	if m := s.receiveOne(s.receiver(3)); m.MessageID != "m1" {
		s.Errorf("received %s", m.MessageID)
	}
	s.queue = longest + "x"
	wantCode(s, "too long a name", s.sender(2).SendMessage(s.ctx, &azservicebus.Message{}, nil), azservicebus.CodeNotFound)
}

// Settings out of range are refused and change nothing.
func settingsRefused(s suite) {
	for field, values := range map[string][]any{
		"lockDuration": {"999ms", "6m"}, "maxDeliveryCount": {0, 1 << 31}, "defaultMessageTimeToLive": {"0s", "-1s", "soon"},
		"duplicateDetectionHistoryTimeWindow": {"19s", "169h"}, "autoDeleteOnIdle": {"4m59s"}, "maxSizeInMegabytes": {0, 81921},
		"status": {"Asleep"}, "userMetadata": {strings.Repeat("x", 1025)}, "requiresDuplicateDetection": {true}, "maxMessageBytes": {1, 2 << 20},
	} {
		for _, value := range values {
			err := s.Members[1].Call(s.ctx, http.MethodPatch, "/v1/queues/"+s.queue, harness.Fields{field: value}, nil)
			if err == nil || !strings.Contains(err.Error(), " 400 ") {
				s.Errorf("%s = %.20v: %v, want a refusal with 400", field, value, err)
			}
		}
	}
	var q struct {
		Settings map[string]any `json:"settings"`
		Version  uint64         `json:"version"`
	}
	s.must("show", s.Members[2].Call(s.ctx, http.MethodGet, "/v1/queues/"+s.queue, nil, &q))
	if q.Version != 1 {
		s.Errorf("after refusals only, the queue has version %d", q.Version)
	}
}

// A refusal names a tracking id, and the member's log has it (docs/requirements.md#t1).
func trackingID(s suite) {
	s.UpdateQueue(s.T, s.queue, harness.Fields{"status": "SendDisabled"})
	before := s.Members[1].LogSize()
	err := s.sender(2).SendMessage(s.ctx, &azservicebus.Message{}, nil)
	if err == nil {
		s.Fatal("the send was accepted")
	}
	found := regexp.MustCompile(`TrackingId:([-0-9a-f]{36})`).FindStringSubmatch(err.Error())
	if found == nil {
		s.Fatalf("no tracking id in %q", err)
	}
	if !strings.Contains(s.Members[1].LogSince(before), found[1]) {
		s.Errorf("the member's log does not have the tracking id %s", found[1])
	}
}
