package amqp

import (
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// section appends one section with an encoded value.
func section(dst []byte, kind wire.SectionKind, v any) []byte {
	return wire.AppendValue(wire.AppendSectionDescriptor(dst, kind), v)
}

func batch(messages ...[]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = section(b, wire.SectionData, m)
	}
	return b
}

func user(name string, v filter.Value) fsm.Property {
	return fsm.Property{Name: filter.Property{Scope: filter.User, Name: name}, Value: v}
}

// A topic gets the properties of single, batched and scheduled messages; a queue gets none and bears no cost.
func TestPropertiesGoToTopicsOnly(t *testing.T) {
	t.Parallel()
	h := &recording{fakeBroker: newFakeBroker("queue").topic("topic", "sub")}
	one := section(section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(message.ScheduledEnqueueTimeKey), Value: time.Now().Add(time.Hour)}}),
		wire.SectionApplicationProperties, wire.Map{{Key: "n", Value: int32(1)}})
	for _, place := range []string{"queue", "topic"} {
		p := managementPeerAt(t, h, fsm.Manage, place+"/$management")
		p.sender(2, place)
		p.transfer(2, 100, one)
		p.accepted()
		p.transfer(2, 101, batch(one, one), func(t *wire.Transfer) { t.MessageFormat = ptr(uint32(batchFormat)) })
		p.accepted()
		if status, _, _ := p.manage(102, management.ScheduleOperation, entries(one)); status != int32(200) {
			t.Errorf("%s: schedule %v", place, status)
		}
		sent := h.taken()
		if len(sent) != 4 {
			t.Fatalf("%s: %d messages", place, len(sent))
		}
		for i, m := range sent {
			properties, err := fsm.DecodeProperties(m.Properties)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, p := range properties {
				found = found || p == user("n", filter.Int(1))
			}
			if found != (place == "topic") || place == "queue" && m.Properties != nil {
				t.Errorf("%s: message %d has properties %v", place, i, properties)
			}
		}
	}
}

// recording is a broker that records the messages sent.
type recording struct {
	*fakeBroker
	mu   sync.Mutex
	sent []fsm.Message
}

func (r *recording) Send(_ fsm.EntityRef, messages []fsm.Message, done func(fsm.Code)) {
	r.note(messages)
	done(fsm.OK)
}

func (r *recording) Schedule(_ fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	r.note(messages)
	done(fsm.OK, make([]fsm.SequenceNumber, len(messages)))
}

func (r *recording) note(messages []fsm.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, messages...)
}

func (r *recording) taken() (sent []fsm.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, r.sent = r.sent, nil
	return sent
}

func TestSDKTimeToLive(t *testing.T) {
	t.Parallel()
	p := newSDKPair(t, nil)
	p.broker.change("orders", func(s *fsm.EntitySettings) {
		s.DefaultTimeToLive, s.DeadLetterOnExpiry, s.LockDuration = 3600_000, true, 300_000
	})
	for body, life := range map[string]time.Duration{"none": 0, "short": time.Minute, "done": time.Minute, "long": 1000 * time.Hour} {
		m := &azservicebus.Message{Body: []byte(body)}
		if life > 0 {
			m.TimeToLive = &life
		}
		p.must(p.sender.SendMessage(p.ctx, m, nil))
	}
	want := map[string]time.Duration{"none": time.Hour, "short": time.Minute, "done": time.Minute, "long": time.Hour}
	held := make(map[string]*azservicebus.ReceivedMessage)
	for _, m := range p.receive(p.receiver, 4) {
		body := string(m.Body)
		held[body] = m
		if *m.TimeToLive != want[body] || !m.ExpiresAt.Equal(m.EnqueuedTime.Add(want[body])) {
			t.Errorf("%q lives %v, until %v, enqueued %v", m.Body, *m.TimeToLive, *m.ExpiresAt, *m.EnqueuedTime)
		}
	}
	// A locked message may be completed after it has expired; an abandoned one expires at once
	// (docs/requirements.md#e3), with a reason (docs/requirements.md#e5).
	p.broker.advanceClock(2 * time.Minute)
	p.must(p.receiver.CompleteMessage(p.ctx, held["done"], nil))
	p.must(p.receiver.AbandonMessage(p.ctx, held["short"], nil))
	dead, err := p.client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	p.must(err)
	m := p.receive(dead, 1)[0]
	if string(m.Body) != "short" || *m.DeadLetterReason != "TTLExpiredException" || *m.TimeToLive != time.Minute {
		t.Errorf("dead letter %q: %v, life %v", m.Body, *m.DeadLetterReason, *m.TimeToLive)
	}
	if c := p.broker.counts("orders"); c.Active != 2 || c.DeadLetter != 1 {
		t.Errorf("counts %+v", c)
	}
}
