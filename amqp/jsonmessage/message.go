package jsonmessage

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/amqp/wire"
)

// Message is an AMQP message in its JSON form. Absent fields are absent in the message, too. At most one kind of body is
// set: Body or BodyBase64 for one data section, Data for several, Value, or Sequence.
type Message struct {
	// Header. Its delivery-count is not part of the form: the broker counts deliveries.
	Durable       *bool   `json:"durable,omitempty"`
	Priority      *uint8  `json:"priority,omitempty"`
	TimeToLive    *uint32 `json:"ttlMilliseconds,omitempty"`
	FirstAcquirer *bool   `json:"firstAcquirer,omitempty"`

	// Properties. The ids and addresses may have any type that AMQP allows.
	MessageID       *Value     `json:"messageId,omitempty"`
	UserID          []byte     `json:"userId,omitempty"`
	To              *Value     `json:"to,omitempty"`
	Subject         *string    `json:"subject,omitempty"`
	ReplyTo         *Value     `json:"replyTo,omitempty"`
	CorrelationID   *Value     `json:"correlationId,omitempty"`
	ContentType     *string    `json:"contentType,omitempty"`
	ContentEncoding *string    `json:"contentEncoding,omitempty"`
	AbsoluteExpiry  *time.Time `json:"absoluteExpiryTime,omitempty"`
	Created         *time.Time `json:"creationTime,omitempty"`
	Session         *string    `json:"sessionId,omitempty"` // group-id
	GroupSequence   *uint32    `json:"groupSequence,omitempty"`
	ReplyToSession  *string    `json:"replyToSessionId,omitempty"`

	Properties          map[string]Value `json:"properties,omitempty"` // application properties
	Annotations         map[string]Value `json:"annotations,omitempty"`
	DeliveryAnnotations map[string]Value `json:"deliveryAnnotations,omitempty"`
	Footer              map[string]Value `json:"footer,omitempty"`

	Body       *string   `json:"body,omitempty"` // UTF-8
	BodyBase64 []byte    `json:"bodyBase64,omitempty"`
	Data       [][]byte  `json:"data,omitempty"`
	Value      *Value    `json:"value,omitempty"`
	Sequence   [][]Value `json:"sequence,omitempty"`
	BodyCut    bool      `json:"bodyCut,omitempty"` // the body is longer than was asked for; Encode refuses the message
}

// Parse reads an encoded message. Of a body of data sections longer than bodyMax bytes in total only that many are kept;
// bodies of values and sequences longer than that are left out. 0 is no limit of the body. It also returns the number of
// bytes of the body. An error means that the message is not valid, or has annotations whose keys are no symbols.
func Parse(encoded []byte, bodyMax int) (m Message, bodyBytes int, err error) {
	var data [][]byte
	for len(encoded) > 0 {
		var kind wire.SectionKind
		var value []byte
		if kind, value, _, encoded, err = wire.NextSection(encoded); err != nil {
			return m, 0, fmt.Errorf("read message: %w", err)
		}
		switch kind { //nolint:exhaustive // parseSection has the others
		case wire.SectionData:
			section, _ := wire.BinaryOf(value)
			data, bodyBytes = append(data, section), bodyBytes+len(section)
		case wire.SectionSequence, wire.SectionValue:
			bodyBytes += len(value)
			if bodyMax > 0 && bodyBytes > bodyMax {
				m.BodyCut = true
				continue
			}
			err = m.parseBody(kind, value)
		default:
			err = m.parseSection(kind, value)
		}
		if err != nil {
			return m, 0, fmt.Errorf("read message: %s: %w", kind, err)
		}
	}
	m.setData(data, bodyMax, bodyBytes)
	return m, bodyBytes, nil
}

// setData sets a body of data sections.
func (m *Message) setData(data [][]byte, bodyMax, bodyBytes int) {
	if bodyMax > 0 && bodyBytes > bodyMax && len(data) > 0 {
		m.BodyCut = true
		var joined []byte
		for _, section := range data {
			joined = append(joined, section[:min(len(section), bodyMax-len(joined))]...)
		}
		for cut := joined; len(cut) > 0 && len(joined)-len(cut) < utf8.UTFMax; cut = cut[:len(cut)-1] {
			if utf8.Valid(cut) { // the cut may have divided a character
				joined = cut
				break
			}
		}
		data = [][]byte{joined}
	}
	switch {
	case len(data) > 1:
		m.Data = data
	case len(data) == 1 && utf8.Valid(data[0]):
		text := string(data[0])
		m.Body = &text
	case len(data) == 1:
		m.BodyBase64 = data[0]
	}
}

func (m *Message) parseBody(kind wire.SectionKind, value []byte) error {
	v, _, err := wire.DecodeValue(value)
	if err != nil {
		return err
	}
	if kind == wire.SectionValue {
		if v == nil {
			v = wire.Raw(value) // the JSON null would be no value
		}
		m.Value = &Value{v}
		return nil
	}
	list, _ := v.([]any)
	m.Sequence = append(m.Sequence, values(list))
	return nil
}

func (m *Message) parseSection(kind wire.SectionKind, value []byte) (err error) {
	switch kind {
	case wire.SectionHeader:
		var h wire.Header
		h, err = wire.DecodeHeader(value)
		m.Durable, m.Priority, m.TimeToLive, m.FirstAcquirer = h.Durable, h.Priority, h.TTL, h.FirstAcquirer
	case wire.SectionProperties:
		err = m.parseProperties(value)
	case wire.SectionApplicationProperties:
		m.Properties, err = parsePairs(value)
	case wire.SectionMessageAnnotations:
		m.Annotations, err = parsePairs(value)
	case wire.SectionDeliveryAnnotations:
		m.DeliveryAnnotations, err = parsePairs(value)
	case wire.SectionFooter:
		m.Footer, err = parsePairs(value)
	case wire.SectionData, wire.SectionSequence, wire.SectionValue: // Parse reads them
	}
	return err
}

func (m *Message) parseProperties(value []byte) error {
	p, err := wire.DecodeProperties(value)
	if err != nil {
		return err
	}
	m.MessageID, m.To, m.ReplyTo, m.CorrelationID = optional(p.MessageID), optional(p.To), optional(p.ReplyTo), optional(p.CorrelationID)
	m.UserID, m.Subject, m.Session, m.ReplyToSession = p.UserID, p.Subject, p.GroupID, p.ReplyToGroupID
	m.ContentType, m.ContentEncoding = (*string)(p.ContentType), (*string)(p.ContentEncoding)
	m.AbsoluteExpiry, m.Created, m.GroupSequence = p.AbsoluteExpiryTime, p.CreationTime, p.GroupSequence
	return nil
}

func optional(v any) *Value {
	if v == nil {
		return nil
	}
	return &Value{v}
}

var errKey = errors.New("a key is neither a symbol nor a string")

func parsePairs(value []byte) (map[string]Value, error) {
	decoded, err := wire.DecodeMap(value)
	if err != nil || len(decoded) == 0 {
		return nil, err
	}
	pairs := make(map[string]Value, len(decoded))
	for _, p := range decoded {
		key, ok := wire.AsText(p.Key)
		if !ok {
			return nil, errKey
		}
		pairs[key] = Value{p.Value}
	}
	return pairs, nil
}
