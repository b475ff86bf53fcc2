package message

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// timed encodes a message with a header.ttl, a creation-time and an absolute-expiry-time; nil omits one.
func timed(ttl *uint32, created, expires *int64) []byte {
	b := wire.AppendHeader(nil, &wire.Header{TTL: ttl})
	p := wire.Properties{MessageID: "m", Subject: ptr("s")}
	if created != nil {
		at := time.UnixMilli(*created)
		p.CreationTime = &at
	}
	if expires != nil {
		at := time.UnixMilli(*expires)
		p.AbsoluteExpiryTime = &at
	}
	b = wire.AppendProperties(b, &p)
	return wire.AppendBinary(wire.AppendSectionDescriptor(b, wire.SectionData), []byte("body"))
}

// The lifetime is read from the difference of the two times, or from the header if one of them is missing (docs/service-bus-protocol.md#time-to-live).
func TestTimeToLiveIsRead(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	endless := uint32(math.MaxUint32)
	for name, c := range map[string]struct {
		ttl              *uint32
		created, expires *int64
		want             fsm.Millis
	}{
		"nothing":                   {nil, nil, nil, 0},
		"header":                    {ptr(uint32(1500)), nil, nil, 1500},
		"span before header":        {ptr(uint32(1500)), ptr(int64(0)), ptr(int64(9)), 9},
		"header that wrapped":       {ptr(uint32(60*day - 1<<32)), ptr(int64(day)), ptr(int64(61 * day)), 60 * day},
		"span alone":                {nil, ptr(int64(1000)), ptr(int64(4000)), 3000},
		"span of 60 days":           {&endless, ptr(int64(day)), ptr(int64(61 * day)), 60 * day},
		"end of the header":         {&endless, nil, nil, math.MaxUint32},
		"only an end":               {nil, nil, ptr(int64(4000)), 0},
		"only a beginning":          {nil, ptr(int64(4000)), nil, 0},
		"ends before it begins":     {nil, ptr(int64(4000)), ptr(int64(3000)), 0},
		"longer than forever":       {&endless, ptr(int64(0)), ptr(int64(fsm.Forever) + 1), fsm.Forever},
		"from end to end of time":   {nil, ptr(int64(math.MinInt64)), ptr(int64(math.MaxInt64)), fsm.Forever},
		"created before the epoch":  {nil, ptr(int64(-1000)), ptr(int64(1000)), 2000},
		"zero header and a span":    {ptr(uint32(0)), ptr(int64(1000)), ptr(int64(2000)), 1000},
		"wraps around and backward": {nil, ptr(int64(math.MaxInt64)), ptr(int64(math.MinInt64)), 0},
	} {
		m, err := Parse(timed(c.ttl, c.created, c.expires))
		if err != nil || m.TimeToLive != c.want {
			t.Errorf("%s: %d, %v, want %d", name, m.TimeToLive, err, c.want)
		}
	}
}

func TestEnqueueTimeIsRead(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_900_000_000_123)
	for name, c := range map[string]struct {
		value any
		want  fsm.Instant
	}{
		"timestamp": {at, 1_900_000_000_123}, "long": {at.UnixMilli(), 1_900_000_000_123},
		"null": {nil, 0}, "in 1970": {time.UnixMilli(0), 1}, "before 1970": {int64(-5), 1},
	} {
		b := section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(ScheduledEnqueueTimeKey), Value: c.value}})
		m, err := Parse(section(b, wire.SectionData, []byte("x")))
		if err != nil || m.EnqueueAt != c.want {
			t.Errorf("%s: %d, %v, want %d", name, m.EnqueueAt, err, c.want)
		}
	}
	m, err := Parse(section(nil, wire.SectionData, []byte("x")))
	if err != nil || m.EnqueueAt != 0 {
		t.Errorf("without: %d, %v", m.EnqueueAt, err)
	}
}

// The client gets the time to live that the queue applies, in the header and in the difference of the two
// times, which it may trust more. Nothing else of the message changes.
func TestDeliveredTimeToLiveIsTheQueues(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	hour := uint32(3600_000)
	both := timed(&hour, ptr(int64(500)), ptr(int64(500+3600_000)))
	reason := fsm.AppendPatches(nil, []fsm.Patch{{Properties: wire.AppendString(wire.AppendString(nil, "k"), "v")}})
	for name, c := range map[string]struct {
		encoded    []byte
		d          fsm.Delivery
		ttl        time.Duration
		expires    int64 // 0: absent
		properties int
	}{
		"never":              {timed(nil, nil, nil), fsm.Delivery{Enqueued: 1000}, 0, 0, 0},
		"default":            {timed(nil, nil, nil), fsm.Delivery{Enqueued: 1000, Expires: 61_000}, time.Minute, 61_000, 0},
		"cut":                {both, fsm.Delivery{Enqueued: 1000, Expires: 61_000}, time.Minute, 60_500, 0},
		"cut and changed":    {both, fsm.Delivery{Enqueued: 1000, Expires: 61_000, Patches: reason}, time.Minute, 60_500, 1},
		"as sent":            {both, fsm.Delivery{Enqueued: 1000, Expires: 1000 + 3600_000}, time.Hour, 3600_500, 0},
		"dead letter":        {both, fsm.Delivery{Enqueued: 1000}, time.Hour, 3600_500, 0},
		"longer than 49 d":   {timed(ptr(uint32(math.MaxUint32)), ptr(int64(7)), ptr(int64(90*day))), fsm.Delivery{Enqueued: 1000, Expires: 1000 + 60*day}, math.MaxUint32 * time.Millisecond, 7 + 60*day, 0},
		"only an end":        {timed(nil, nil, ptr(int64(77))), fsm.Delivery{Enqueued: 1000, Expires: 61_000}, time.Minute, 77, 0},
		"expired, on a peek": {both, fsm.Delivery{Enqueued: 1000, Expires: 1001}, time.Millisecond, 501, 0},
	} {
		c.d.Lock.Sequence = 1
		got := deliver(t, c.encoded, c.d, DeliveryOptions{})
		if got.Header.TTL != c.ttl {
			t.Errorf("%s: ttl %v, want %v", name, got.Header.TTL, c.ttl)
		}
		end := got.Properties.AbsoluteExpiryTime
		if (end != nil) != (c.expires != 0) || end != nil && end.UnixMilli() != c.expires {
			t.Errorf("%s: ends at %v, want %d", name, end, c.expires)
		}
		if got.Properties.MessageID != "m" || *got.Properties.Subject != "s" || string(got.Data[0]) != "body" || len(got.ApplicationProperties) != c.properties {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// All deliveries share the stored bytes, so the bytes must not change.
	m := kit.Must(Parse(both))(t)
	before := string(m.Payload)
	if _, err := AppendDelivery(nil, testPlace(), fsm.Delivery{Payload: m.Payload, Enqueued: 1, Expires: 2}, DeliveryOptions{}); err != nil || string(m.Payload) != before {
		t.Errorf("delivery changed the payload (%v)", err)
	}
}

// A message without a time to live gets that of its queue as both times, 100 days exactly. A creation-time of the
// sender stays, and with it the difference is the same.
func TestDefaultTimeToLiveIsDeliveredAsBothTimes(t *testing.T) {
	t.Parallel()
	const hundredDays = 100 * 24 * 3600 * 1000
	d := fsm.Delivery{Enqueued: 1000, Expires: 1000 + hundredDays}
	for name, c := range map[string]struct {
		encoded []byte
		created int64
	}{
		"no properties":     {section(nil, wire.SectionData, []byte("x")), 1000},
		"no times":          {timed(nil, nil, nil), 1000},
		"own creation-time": {timed(nil, ptr(int64(77)), nil), 77},
	} {
		p := deliver(t, c.encoded, d, DeliveryOptions{}).Properties
		if p.CreationTime == nil || p.AbsoluteExpiryTime == nil || p.CreationTime.UnixMilli() != c.created || p.AbsoluteExpiryTime.UnixMilli() != c.created+hundredDays {
			t.Errorf("%s: from %v to %v, want 100 days from %d on", name, p.CreationTime, p.AbsoluteExpiryTime, c.created)
		}
	}
	p := deliver(t, timed(ptr(uint32(1500)), nil, nil), d, DeliveryOptions{}).Properties
	if p.CreationTime != nil || p.AbsoluteExpiryTime != nil {
		t.Errorf("a message with a time to live of its own got the times %v and %v", p.CreationTime, p.AbsoluteExpiryTime)
	}
}

// Regardless of the fields present, only the end of the lifetime changes.
func TestCorrectedExpiryChangesNothingElse(t *testing.T) {
	t.Parallel()
	for fields := range 1 << 13 {
		if fields&(1<<8) == 0 || fields&(1<<9) == 0 {
			continue
		}
		full := fullMessage().Properties
		p := *full
		for i, clear := range []func(){
			func() { p.MessageID = nil }, func() { p.UserID = nil }, func() { p.To = nil }, func() { p.Subject = nil }, func() { p.ReplyTo = nil },
			func() { p.CorrelationID = nil }, func() { p.ContentType = nil }, func() { p.ContentEncoding = nil }, func() {}, func() {},
			func() { p.GroupID = nil }, func() { p.GroupSequence = nil }, func() { p.ReplyToGroupID = nil },
		} {
			if fields&(1<<i) == 0 {
				clear()
			}
		}
		encoded := kit.Must((&goamqp.Message{Properties: &p, Data: [][]byte{{1}}}).MarshalBinary())(t)
		got := deliver(t, encoded, fsm.Delivery{Enqueued: 1000, Expires: 4000}, DeliveryOptions{})
		p.AbsoluteExpiryTime = ptr(p.CreationTime.Add(3 * time.Second))
		if !sameMessage(&goamqp.Message{Properties: &p}, &goamqp.Message{Properties: got.Properties}) {
			t.Fatalf("fields %013b: %+v, want %+v", fields, got.Properties, p)
		}
	}
}

func TestLongNamesAreRefused(t *testing.T) {
	t.Parallel()
	build := map[string]func(name string) []byte{
		"message-id": func(name string) []byte { return wire.AppendProperties(nil, &wire.Properties{MessageID: name}) },
		"group-id":   func(name string) []byte { return wire.AppendProperties(nil, &wire.Properties{GroupID: &name}) },
		partitionKeyKey: func(name string) []byte {
			return section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(partitionKeyKey), Value: name}})
		},
		viaPartitionKeyKey: func(name string) []byte {
			return section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(viaPartitionKeyKey), Value: name}})
		},
	}
	for what, encode := range build {
		fits := section(encode(strings.Repeat("ä", NameCharactersMax)), wire.SectionData, []byte("x"))
		if _, err := Parse(fits); err != nil {
			t.Errorf("%s of %d characters: %v", what, NameCharactersMax, err)
		}
		_, err := Parse(section(encode(strings.Repeat("ä", NameCharactersMax+1)), wire.SectionData, []byte("x")))
		var m *Error
		if !errors.As(err, &m) || m.Condition != wire.ConditionArgumentError || !strings.Contains(m.Text, what) {
			t.Errorf("%s one too long: %v", what, err)
		}
	}
}

// A message without a positive time to live, or with a partition key that differs from its session id, is refused. Absent
// and empty values restrict nothing.
func TestContradictingMessagesAreRefused(t *testing.T) {
	t.Parallel()
	keyed := func(session *string, key any) []byte {
		b := section(nil, wire.SectionMessageAnnotations, wire.Map{{Key: wire.Symbol(partitionKeyKey), Value: key}})
		b = wire.AppendProperties(b, &wire.Properties{GroupID: session})
		return section(b, wire.SectionData, []byte("x"))
	}
	for name, c := range map[string]struct {
		encoded   []byte
		condition wire.Symbol
		text      string
	}{
		"header of 0":           {timed(ptr(uint32(0)), nil, nil), wire.ConditionArgumentError, "TimeToLive must be a positive timeout value"},
		"header of 0, one time": {timed(ptr(uint32(0)), ptr(int64(9)), nil), wire.ConditionArgumentError, "the header has a ttl of 0"},
		"equal times":           {timed(ptr(uint32(5)), ptr(int64(9)), ptr(int64(9))), wire.ConditionArgumentError, "TimeToLive must be a positive timeout value"},
		"other key":             {keyed(ptr("a"), "b"), wire.ConditionNotAllowed, "the partition key 'b' differs from the session id 'a'"},
		"other binary key":      {keyed(ptr("a"), []byte("b")), wire.ConditionNotAllowed, "differs from the session id"},
		"same key":              {keyed(ptr("a"), []byte("a")), "", ""},
		"null key":              {keyed(ptr("a"), nil), "", ""},
		"empty key":             {keyed(ptr("a"), ""), "", ""},
		"empty session":         {keyed(ptr(""), "b"), "", ""},
		"no session":            {keyed(nil, "b"), "", ""},
	} {
		_, err := Parse(c.encoded)
		var refused *Error
		if (err != nil) != (c.condition != "") || err != nil && (!errors.As(err, &refused) || refused.Condition != c.condition || !strings.Contains(refused.Text, c.text)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
