package dataplane

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// secondsForever is the largest TimeSpan of .NET in seconds, which is the time to live of messages without one.
const secondsForever = 922337203685.47754

// brokerProperties are the properties that a sender gives in the header BrokerProperties or in a batch. A text that is not
// given is nil.
type brokerProperties struct {
	MessageID, CorrelationID, SessionID, ReplyToSessionID, Label, To, ReplyTo, PartitionKey, ViaPartitionKey *string

	ContentType string // of a message in a batch
	TimeToLive  time.Duration
	ScheduledAt time.Time
}

// read reads a JSON object; names have any case, and those that senders do not set are ignored.
func (b *brokerProperties) read(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var given map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&given); err != nil {
		return &refusal{http.StatusBadRequest, "BrokerProperties is a JSON object: " + err.Error()}
	}
	texts := map[string]**string{
		"messageid": &b.MessageID, "correlationid": &b.CorrelationID, "sessionid": &b.SessionID, "replytosessionid": &b.ReplyToSessionID,
		"label": &b.Label, "subject": &b.Label, "to": &b.To, "replyto": &b.ReplyTo, "partitionkey": &b.PartitionKey, "viapartitionkey": &b.ViaPartitionKey,
	}
	for name, value := range given {
		if value == nil {
			continue
		}
		written := fmt.Sprint(value)
		var err error
		switch key := strings.ToLower(name); {
		case texts[key] != nil:
			*texts[key] = &written
		case key == "contenttype":
			b.ContentType = written
		case key == "timetolive":
			b.TimeToLive, err = readSeconds(written)
		case key == "timetolivetimespan":
			b.TimeToLive, err = readTimeSpan(written)
		case key == "scheduledenqueuetimeutc":
			b.ScheduledAt, err = readTime(written)
		}
		if err != nil {
			return &refusal{http.StatusBadRequest, fmt.Sprintf("BrokerProperties: %s %s, not %.60q", name, err.Error(), written)}
		}
	}
	return nil
}

// readSeconds reads a time to live in seconds, which may have a fraction.
func readSeconds(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > 0) {
		return 0, fmt.Errorf("is a number of seconds above 0")
	}
	if seconds >= math.MaxInt64/float64(time.Second) { // the largest TimeSpan is no limit
		return 0, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// readTimeSpan reads a TimeSpan of .NET: [d.]hh:mm:ss[.fffffff].
func readTimeSpan(text string) (time.Duration, error) {
	err := fmt.Errorf("is a time span like 1.02:03:04.5")
	days, clock := 0.0, text
	if before, after, found := strings.Cut(text, "."); found && strings.Contains(after, ":") {
		n, failed := strconv.ParseUint(before, 10, 32)
		if failed != nil {
			return 0, err
		}
		days, clock = float64(n), after
	}
	parts := strings.Split(clock, ":")
	if len(parts) != 3 {
		return 0, err
	}
	total := days
	for i, most := range []float64{24, 60, 60} {
		n, failed := strconv.ParseFloat(parts[i], 64)
		if failed != nil || !(n >= 0 && n < most) {
			return 0, err
		}
		total = total*most + n
	}
	return readSeconds(strconv.FormatFloat(total, 'f', -1, 64))
}

// readTime reads a time of RFC 1123, or of RFC 3339.
func readTime(text string) (time.Time, error) {
	for _, form := range []string{http.TimeFormat, time.RFC1123, time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("is a time like Fri, 20 Nov 2026 12:00:00 GMT")
}

// annotations returns the message annotations of a sender.
func (b *brokerProperties) annotations() wire.Map {
	var notes wire.Map
	if !b.ScheduledAt.IsZero() {
		notes = append(notes, wire.Pair{Key: wire.Symbol(message.ScheduledEnqueueTimeKey), Value: b.ScheduledAt})
	}
	if b.PartitionKey != nil {
		notes = append(notes, wire.Pair{Key: wire.Symbol("x-opt-partition-key"), Value: *b.PartitionKey})
	}
	if b.ViaPartitionKey != nil {
		notes = append(notes, wire.Pair{Key: wire.Symbol("x-opt-via-partition-key"), Value: *b.ViaPartitionKey})
	}
	return notes
}

// properties returns the properties section of a sender. A time to live beyond the 49 days of a header is written as the
// time between creation and expiry.
func (b *brokerProperties) properties() wire.Properties {
	p := wire.Properties{Subject: b.Label, GroupID: b.SessionID, ReplyToGroupID: b.ReplyToSessionID}
	for _, text := range []struct {
		from *string
		to   *any
	}{{b.MessageID, &p.MessageID}, {b.CorrelationID, &p.CorrelationID}, {b.To, &p.To}, {b.ReplyTo, &p.ReplyTo}} {
		if text.from != nil {
			*text.to = *text.from
		}
	}
	if b.TimeToLive.Milliseconds() >= 1<<32 {
		now := time.Now().UTC().Truncate(time.Millisecond)
		end := now.Add(b.TimeToLive)
		p.CreationTime, p.AbsoluteExpiryTime = &now, &end
	}
	return p
}

// received is a message as HTTP has it.
type received struct {
	body        []byte
	contentType string
	broker      map[string]any
	custom      map[string]string // header by property
}

// decode converts a delivery.
func decode(at fsm.EntityRef, d *fsm.Delivery) (*received, error) {
	encoded, err := message.AppendDelivery(nil, at, *d, message.DeliveryOptions{})
	if err != nil {
		return nil, err
	}
	m := &received{custom: make(map[string]string), broker: map[string]any{
		"DeliveryCount": d.FailedDeliveries + 1, "SequenceNumber": d.Lock.Sequence, "EnqueuedTimeUtc": httpTime(d.Enqueued),
		"State": "Active", "TimeToLive": secondsForever,
	}}
	if d.Expires > 0 {
		m.broker["TimeToLive"] = float64(d.Expires-d.Enqueued) / 1000
	}
	var body body
	for rest := encoded; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			return nil, fmt.Errorf("read message %d: %w", d.Lock.Sequence, err)
		}
		if rest = behind; kind == wire.SectionProperties {
			err = m.readProperties(value)
		} else {
			err = m.readSection(kind, value, &body)
		}
		if err != nil {
			return nil, fmt.Errorf("read message %d: %w", d.Lock.Sequence, err)
		}
	}
	m.body = body.bytes()
	return m, nil
}

func (m *received) readSection(kind wire.SectionKind, value []byte, body *body) error {
	switch kind { //nolint:exhaustive // the others are not shown
	case wire.SectionMessageAnnotations:
		notes, err := wire.DecodeMap(value)
		if err != nil {
			return err
		}
		m.readAnnotations(notes)
	case wire.SectionApplicationProperties:
		custom, err := wire.DecodeMap(value)
		if err != nil {
			return err
		}
		for _, pair := range custom {
			name, _ := wire.AsText(pair.Key)
			if text, ok := headerText(pair.Value); ok && isHeaderName(name) {
				m.custom[name] = text
			}
		}
	case wire.SectionData, wire.SectionSequence, wire.SectionValue:
		v, _, err := wire.DecodeValue(value)
		if err != nil {
			return err
		}
		body.add(v)
	}
	return nil
}

func (m *received) readAnnotations(notes wire.Map) {
	for key, name := range map[string]string{
		message.EnqueueSequenceNumberKey: "EnqueuedSequenceNumber", message.DeadLetterSourceKey: "DeadLetterSource",
		"x-opt-partition-key": "PartitionKey", "x-opt-via-partition-key": "ViaPartitionKey", message.ScheduledEnqueueTimeKey: "ScheduledEnqueueTimeUtc",
	} {
		switch v := notes.Get(key).(type) {
		case nil:
		case time.Time:
			m.broker[name] = v.UTC().Format(http.TimeFormat)
		default:
			m.broker[name] = v
		}
	}
}

func (m *received) readProperties(value []byte) error {
	p, err := wire.DecodeProperties(value)
	if err != nil {
		return err
	}
	for name, v := range map[string]any{
		"MessageId": p.MessageID, "CorrelationId": p.CorrelationID, "To": p.To, "ReplyTo": p.ReplyTo,
	} {
		if v != nil {
			m.broker[name] = plainText(v)
		}
	}
	for name, v := range map[string]*string{"Label": p.Subject, "SessionId": p.GroupID, "ReplyToSessionId": p.ReplyToGroupID} {
		if v != nil {
			m.broker[name] = *v
		}
	}
	if p.ContentType != nil {
		m.contentType = string(*p.ContentType)
	}
	return nil
}

// write answers with the message.
func (m *received) write(w http.ResponseWriter, status int) error {
	properties, err := json.Marshal(m.broker)
	if err != nil {
		return fmt.Errorf("encode BrokerProperties: %w", err)
	}
	header := w.Header()
	for name, text := range m.custom {
		header[name] = []string{text} // in the spelling of the sender
	}
	header.Set("BrokerProperties", asciiJSON(properties))
	header["Content-Type"] = nil
	if m.contentType != "" {
		header.Set("Content-Type", m.contentType)
	}
	w.WriteHeader(status)
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush() // no Content-Length: retired clients take headers that they do not know for properties
	}
	_, _ = w.Write(m.body)
	return nil
}

// asciiJSON escapes the characters of JSON beyond ASCII, because headers have none.
func asciiJSON(text []byte) string {
	var out strings.Builder
	for _, c := range string(text) {
		switch {
		case c < 0x80:
			out.WriteRune(c)
		case c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
	}
	return out.String()
}

// httpTime is a time in the form of HTTP.
func httpTime(at fsm.Instant) string {
	return time.UnixMilli(int64(at)).UTC().Format(http.TimeFormat)
}
