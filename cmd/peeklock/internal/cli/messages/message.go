package messages

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// Annotations that the broker sets on deliveries (docs/service-bus-protocol.md#message-annotations).
const (
	noteSequence    = "x-opt-sequence-number"
	noteEnqueued    = "x-opt-enqueued-time"
	noteLockedUntil = "x-opt-locked-until"
	noteState       = "x-opt-message-state"
)

// PropertyReason is the application property that holds the reason of a dead letter.
const PropertyReason = "DeadLetterReason"

// ShownMessage is a message as receive and peek print it.
type ShownMessage struct {
	Sequence      int64          `json:"sequenceNumber"`
	ID            any            `json:"messageId,omitempty"`
	Session       *string        `json:"sessionId,omitempty"`
	State         string         `json:"state,omitempty"` // set by peek only
	DeliveryCount uint32         `json:"deliveryCount"`
	Enqueued      *time.Time     `json:"enqueuedAt,omitempty"`
	LockedUntil   *time.Time     `json:"lockedUntil,omitempty"`
	Expires       *time.Time     `json:"expiresAt,omitempty"`
	Scheduled     *time.Time     `json:"scheduledFor,omitempty"` // set by peek only, until the message is enqueued
	Subject       string         `json:"subject,omitempty"`
	ContentType   string         `json:"contentType,omitempty"`
	CorrelationID any            `json:"correlationId,omitempty"`
	ReplyTo       string         `json:"replyTo,omitempty"`
	To            string         `json:"to,omitempty"`
	Properties    map[string]any `json:"properties,omitempty"`
	Body          string         `json:"body,omitempty"`       // if it is text
	BodyBase64    string         `json:"bodyBase64,omitempty"` // if it is not text
	Settled       string         `json:"settled,omitempty"`    // how receive settled it
}

// NewShownMessage converts a received message to its printed form.
func NewShownMessage(m *amqp.Message) *ShownMessage {
	s := &ShownMessage{Properties: m.ApplicationProperties}
	if n, ok := m.Annotations[noteSequence].(int64); ok {
		s.Sequence = n
	}
	s.Enqueued = timeOf(m.Annotations[noteEnqueued])
	s.LockedUntil = timeOf(m.Annotations[noteLockedUntil])
	s.Scheduled = timeOf(m.Annotations[noteScheduled])
	if m.Header != nil {
		s.DeliveryCount = m.Header.DeliveryCount
	}
	s.Expires = expiry(m, s.Enqueued)
	if p := m.Properties; p != nil {
		s.ID, s.CorrelationID = p.MessageID, p.CorrelationID
		s.Subject, s.ContentType = output.TextOf(p.Subject), output.TextOf(p.ContentType)
		s.ReplyTo, s.To = output.TextOf(p.ReplyTo), output.TextOf(p.To)
		s.Session = p.GroupID
	}
	s.setBody(m)
	return s
}

func (s *ShownMessage) setBody(m *amqp.Message) {
	var body []byte
	switch {
	case len(m.Data) > 0:
		for _, part := range m.Data {
			body = append(body, part...)
		}
	case m.Value != nil:
		body = fmt.Append(nil, m.Value)
	case len(m.Sequence) > 0:
		body = fmt.Append(nil, m.Sequence)
	}
	if utf8.Valid(body) {
		s.Body = string(body)
		return
	}
	s.BodyBase64 = base64.StdEncoding.EncodeToString(body)
}

// expiry returns the time at which a message expires, computed as official clients do, or nil for never. The
// header cannot hold more than 49 days.
func expiry(m *amqp.Message, enqueued *time.Time) *time.Time {
	if m.Properties != nil && m.Properties.AbsoluteExpiryTime != nil && m.Properties.CreationTime != nil {
		return timeOf(*m.Properties.AbsoluteExpiryTime)
	}
	if m.Header == nil || m.Header.TTL <= 0 || enqueued == nil {
		return nil
	}
	return timeOf(enqueued.Add(m.Header.TTL))
}

func timeOf(v any) *time.Time {
	if t, ok := v.(time.Time); ok && !t.IsZero() {
		t = t.UTC()
		return &t
	}
	return nil
}

// lineHeader and line format messages for the table output. Messages are printed one by one as they arrive, so the
// columns have fixed widths.
const lineHeader = "SEQUENCE  ATTEMPTS  ENQUEUED (UTC)           ID                    BODY"

func (s *ShownMessage) tableLine() string {
	when, id := "-", "-"
	if s.Enqueued != nil {
		when = s.Enqueued.Format("2006-01-02 15:04:05.000")
	}
	if s.ID != nil {
		id = output.Printable(fmt.Sprint(s.ID), 17)
	}
	body := output.Printable(s.Body, 120)
	if s.BodyBase64 != "" {
		body = fmt.Sprintf("(binary, base64) %s", output.Printable(s.BodyBase64, 60))
	}
	return fmt.Sprintf("%8d  %8d  %-23s  %-20s  %s", s.Sequence, s.DeliveryCount, when, id, body)
}
