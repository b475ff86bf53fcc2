package dataplane

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// batchType is the content type of a batch.
const batchType = "application/vnd.microsoft.servicebus.json"

// formType is the content type of a list of messages in their JSON form (package jsonmessage), with the AMQP type of every value. The
// lines of a dump are such messages.
const formType = "application/vnd.peeklock.messages+json"

// envelopeFactor is how much larger a request may be than the largest message: base64 and JSON around a batch.
const envelopeFactor = 2

// copiesOfBody is how many copies of a body exist while it is sent: as it was read, parsed and encoded.
const copiesOfBody = 3

// send stores the message or the batch of a request, all or nothing.
func (s *Server) send(r *request) error {
	at, ctx := r.at, r.http.Context()
	limit := int64(at.Settings.WithDefaults().MaxMessageBytes)
	contentType := r.http.Header.Get("Content-Type")
	isForm, isBatch := strings.EqualFold(contentType, formType), strings.HasPrefix(strings.ToLower(contentType), batchType)
	if isBatch && !strings.EqualFold(contentType, batchType) {
		return &refusal{http.StatusBadRequest, "the content type of a batch has no parameters: it is exactly " + batchType}
	}
	if isBatch || isForm {
		limit *= envelopeFactor
	}
	length := r.http.ContentLength
	if length < 0 || length > limit {
		length = limit
	}
	if err := r.place.hold(copiesOfBody * length); err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(r.w, r.http.Body, limit))
	if errors.As(err, new(*http.MaxBytesError)) {
		return fmt.Errorf("%w: the entity takes messages of up to %d bytes", fsm.MessageTooLarge, at.Settings.WithDefaults().MaxMessageBytes)
	}
	if err != nil {
		return &refusal{http.StatusBadRequest, "the body cannot be read"}
	}
	var encoded [][]byte
	switch {
	case isForm:
		encoded, err = readForms(body, time.Now())
	case isBatch:
		encoded, err = readBatch(body)
	default:
		var one outgoingMessage
		one, err = readMessage(r.http, body, r.from.Spelling)
		encoded = [][]byte{one.encode()}
	}
	if err != nil {
		return err
	}
	messages, err := parseAll(&at, encoded)
	if err != nil {
		return err
	}
	code, err := await(ctx, func(done func(fsm.Code)) { s.config.Broker.Send(at, messages, done) })
	if err != nil {
		return err
	}
	if code != fsm.OK {
		return code
	}
	r.w.WriteHeader(http.StatusCreated)
	return nil
}

// outgoingMessage is a message that a client sends.
type outgoingMessage struct {
	body        []byte
	contentType string // "": none
	broker      brokerProperties
	custom      wire.Map
}

// readMessage reads a message from a request: its headers are the properties.
func readMessage(r *http.Request, body []byte, spelling func(string) string) (outgoingMessage, error) {
	m := outgoingMessage{body: body, contentType: r.Header.Get("Content-Type"), custom: customProperties(r.Header, spelling)}
	err := m.broker.read([]byte(r.Header.Get("BrokerProperties")))
	return m, err
}

// readForms reads and encodes a list of messages in their JSON form, one after another. scheduledFor, of the lines of a dump, schedules a message that
// is not due yet. Other fields of such lines, which the broker sets, are ignored.
func readForms(body []byte, now time.Time) (encoded [][]byte, err error) {
	wrong := func(err error) error {
		return &refusal{http.StatusBadRequest, fmt.Sprintf("message %d of the list: %s", len(encoded), err.Error())}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return nil, &refusal{http.StatusBadRequest, "the body is a JSON list of messages, as GET /v1/messages shows them"}
	}
	for decoder.More() {
		if len(encoded) == message.BatchMessagesMax {
			return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("a list has 1 to %d messages", message.BatchMessagesMax)}
		}
		var m struct {
			jsonmessage.Message

			Due *time.Time `json:"scheduledFor"`
		}
		if err := decoder.Decode(&m); err != nil {
			return nil, wrong(err)
		}
		if m.Due != nil && m.Due.After(now) {
			if m.Annotations == nil {
				m.Annotations = make(map[string]jsonmessage.Value)
			}
			m.Annotations[message.ScheduledEnqueueTimeKey] = jsonmessage.Value{Go: m.Due.UTC()}
		}
		one, err := m.Encode()
		if err != nil {
			return nil, wrong(err)
		}
		encoded = append(encoded, one)
	}
	if _, err := decoder.Token(); err != nil || len(encoded) == 0 {
		return nil, &refusal{http.StatusBadRequest, "the list has no message, or no end"}
	}
	return encoded, nil
}

// readBatch reads and encodes a batch: a list of messages with a text each, or bytes in base64. Headers do not apply to them.
func readBatch(body []byte) ([][]byte, error) {
	var list []struct {
		Body             string          `json:"Body"`
		IsBodyBase64     bool            `json:"IsBodyBase64"`
		BrokerProperties json.RawMessage `json:"BrokerProperties"`
		UserProperties   map[string]any  `json:"UserProperties"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, &refusal{http.StatusBadRequest, "a batch is a JSON list of objects with Body, IsBodyBase64, BrokerProperties and UserProperties: " + err.Error()}
	}
	if len(list) == 0 || len(list) > message.BatchMessagesMax {
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("a batch has 1 to %d messages, not %d", message.BatchMessagesMax, len(list))}
	}
	encoded := make([][]byte, len(list))
	for i, from := range list {
		m := outgoingMessage{body: []byte(from.Body)}
		if from.IsBodyBase64 {
			var err error
			if m.body, err = base64.StdEncoding.DecodeString(from.Body); err != nil {
				return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("message %d of the batch: Body is not base64", i)}
			}
		}
		if err := m.broker.read(from.BrokerProperties); err != nil {
			return nil, err
		}
		m.contentType = m.broker.ContentType
		m.custom = userProperties(from.UserProperties)
		encoded[i] = m.encode()
	}
	return encoded, nil
}

// parseAll converts encoded messages to their stored form; for a topic, with the properties that its rules see.
func parseAll(at *fsm.EntityRef, encoded [][]byte) ([]fsm.Message, error) {
	messages := make([]fsm.Message, len(encoded))
	for i, one := range encoded {
		if withID, ok := message.AppendWithID(nil, one); ok {
			one = withID
		}
		var err error
		if messages[i], err = message.Parse(one); err != nil {
			return nil, err
		}
		if err := applySession(at, &messages[i]); err != nil {
			return nil, err
		}
	}
	if at.Kind == fsm.TopicEntity {
		var rules message.RuleReader
		return messages, rules.ReadAll(messages)
	}
	return messages, nil
}

// applySession checks the session of a message, and removes it where the entity has no sessions.
func applySession(at *fsm.EntityRef, m *fsm.Message) error {
	switch {
	case at.Settings.RequiresSession && !m.HasSession:
		return &refusal{http.StatusBadRequest, "the SessionId was not set on a message, and entities that have session support enabled can only receive messages that have the SessionId set to a valid value"}
	case !at.Settings.RequiresSession && at.Kind != fsm.TopicEntity:
		if m.HasSession && len(at.Shards) > 0 {
			m.PartitionKey = m.Session // it still binds the message to a shard
		}
		m.Session, m.HasSession = "", false
	}
	return nil
}

// encode returns the message as an AMQP client would send it, with its body as data.
func (m *outgoingMessage) encode() []byte {
	b := &m.broker
	var out []byte
	if b.TimeToLive > 0 {
		ttl := uint32(min(b.TimeToLive.Milliseconds(), 1<<32-1))
		out = wire.AppendHeader(out, &wire.Header{TTL: &ttl})
	}
	if notes := b.annotations(); len(notes) > 0 {
		out = wire.AppendSectionDescriptor(out, wire.SectionMessageAnnotations)
		out = wire.AppendMap(out, notes)
	}
	p := b.properties()
	if m.contentType != "" {
		symbol := wire.Symbol(m.contentType)
		p.ContentType = &symbol
	}
	out = wire.AppendProperties(out, &p)
	if len(m.custom) > 0 {
		out = wire.AppendSectionDescriptor(out, wire.SectionApplicationProperties)
		out = wire.AppendMap(out, m.custom)
	}
	out = wire.AppendSectionDescriptor(out, wire.SectionData)
	return wire.AppendBinary(out, m.body)
}

// statusOfMessage is the status for a message that the codec refuses.
func statusOfMessage(err *message.Error) int {
	if err.Condition == wire.ConditionMessageSizeExceeded {
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}
