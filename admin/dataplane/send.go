package dataplane

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// batchType is the content type of a batch.
const batchType = "application/vnd.microsoft.servicebus.json"

// envelopeFactor is how much larger a request may be than the largest message: base64 and JSON around a batch.
const envelopeFactor = 2

// copiesOfBody is how many copies of a body exist while it is sent: as it was read, parsed and encoded.
const copiesOfBody = 3

// send stores the message or the batch of a request, all or nothing.
func (s *Server) send(r *request) error {
	at, ctx := r.at, r.http.Context()
	limit := int64(at.Settings.WithDefaults().MaxMessageBytes)
	contentType := r.http.Header.Get("Content-Type")
	isBatch := strings.HasPrefix(strings.ToLower(contentType), batchType)
	if isBatch {
		if !strings.EqualFold(contentType, batchType) {
			return &refusal{http.StatusBadRequest, "the content type of a batch has no parameters: it is exactly " + batchType}
		}
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
	var outgoing []outgoingMessage
	if isBatch {
		outgoing, err = readBatch(body)
	} else {
		outgoing = make([]outgoingMessage, 1)
		outgoing[0], err = readMessage(r.http, body, r.from.Spelling)
	}
	if err != nil {
		return err
	}
	messages, err := encodeAll(&at, outgoing)
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

// readBatch reads a batch: a list of messages with a text each, or bytes in base64. Headers do not apply to them.
func readBatch(body []byte) ([]outgoingMessage, error) {
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
	messages := make([]outgoingMessage, len(list))
	for i, from := range list {
		m := &messages[i]
		m.body = []byte(from.Body)
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
	}
	return messages, nil
}

// encodeAll converts messages to their stored form; for a topic, with the properties that its rules see.
func encodeAll(at *fsm.EntityRef, outgoing []outgoingMessage) ([]fsm.Message, error) {
	messages := make([]fsm.Message, len(outgoing))
	for i := range outgoing {
		encoded := outgoing[i].encode()
		if withID, ok := message.AppendWithID(nil, encoded); ok {
			encoded = withID
		}
		var err error
		if messages[i], err = message.Parse(encoded); err != nil {
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
