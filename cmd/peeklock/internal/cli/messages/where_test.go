package messages

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/fsm/filter"
)

func TestWhereSelectsMessages(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	m := &amqp.Message{
		Header: &amqp.MessageHeader{DeliveryCount: 3},
		Properties: &amqp.MessageProperties{
			MessageID: "m1", CorrelationID: amqp.UUID{1}, Subject: text("order"), GroupID: text("s1"), To: text("somewhere"),
		},
		Annotations: amqp.Annotations{
			noteSequence: int64(42), noteEnqueued: time.UnixMilli(1000), "x-opt-partition-key": "key",
			"x-opt-deadletter-source": "orders", "x-opt-enqueue-sequence-number": int64(7),
		},
		ApplicationProperties: map[string]any{
			PropertyReason: "MaxDeliveryCountExceeded", "customer": int32(7), "big": uint64(1 << 63), "small": int8(-1), "price": float32(2.5),
			"flag": true, "nothing": nil, "bin": []byte("x"), "when": time.UnixMilli(2000), "Twice": "b", "tWice": "c", "TWICE": "a",
			"u8": uint8(8), "u16": uint16(16), "u32": uint32(32), "i16": int16(16), "i64": int64(64), "d": 0.5, "id": amqp.UUID{2}, "odd": struct{}{},
		},
	}
	for expression, want := range map[string]bool{
		"DeadLetterReason = 'MaxDeliveryCountExceeded'":                         true,
		"deadletterreason LIKE 'MaxDelivery%'":                                  true,
		"sys.DeadLetterReason LIKE 'MaxDelivery%'":                              true,
		"SYS.deadletterreason LIKE 'TTL%'":                                      false,
		"sys.DeadLetterErrorDescription IS NULL":                                true,
		"customer = 7 AND sys.DeliveryCount > 2":                                true,
		"customer = '7'":                                                        false,
		"sys.SequenceNumber = 42 AND sys.EnqueuedSequenceNumber = 7":            true,
		"sys.Label = 'order' AND sys.SessionId = 's1' AND sys.MessageId = 'm1'": true,
		"sys.To = 'somewhere' AND sys.PartitionKey = 'key'":                     true,
		"sys.DeadLetterSource = 'orders'":                                       true,
		"sys.ReplyTo IS NULL AND sys.ContentType IS NULL":                       true,
		"sys.ReplyToSessionId IS NULL AND sys.ExpiresAtUtc IS NULL":             true,
		"sys.CorrelationId IS NOT NULL AND sys.CorrelationId <> id":             true,
		"when > sys.EnqueuedTimeUtc AND sys.ScheduledEnqueueTimeUtc IS NULL":    true,
		"missing = 1":                         false,
		"NOT missing = 1":                     false,
		"EXISTS(nothing) AND nothing IS NULL": true,
		"big = 9223372036854775808.0 AND small = -1 AND price = 2.5": true,
		"u8 + u16 + u32 + i16 + i64 = 136 AND d = 0.5 AND flag":      true,
		"EXISTS(odd) AND odd IS NULL AND bin IS NOT NULL":            true,
		"twice = 'a'":   true,
		"newid() <> id": true,
	} {
		var where *filter.Expr
		if err := (whereFlag{&where}).Set(expression); err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := matchesWhere(where, m, NewShownMessage(m), "Own"); got != want || err != nil {
			t.Errorf("%s: got %t, %v", expression, got, err)
		}
	}
	var source *filter.Expr
	if err := (whereFlag{&source}).Set("sys.DeadLetterSource = 'own'"); err != nil {
		t.Fatal(err)
	}
	for deadLettersOf, want := range map[string]bool{"Own": true, "": false} {
		own := &amqp.Message{}
		if got, err := matchesWhere(source, own, NewShownMessage(own), deadLettersOf); got != want || err != nil {
			t.Errorf("own dead letter of %q matches its source: %v (%v), want %v", deadLettersOf, got, err, want)
		}
	}
	if got, err := matchesWhere(nil, &amqp.Message{}, &ShownMessage{}, ""); !got || err != nil {
		t.Errorf("no expression: %t, %v", got, err)
	}
}

func TestErrorsOfWhereEndTheCommand(t *testing.T) {
	t.Parallel()
	var where *filter.Expr
	if err := (whereFlag{&where}).Set("customer = = 7"); err == nil || !strings.Contains(err.Error(), "character 12") {
		t.Errorf("got %v", err)
	}
	for _, expression := range []string{"sys.Nonsense = 1", "1 / 0 = 1"} {
		if err := (whereFlag{&where}).Set(expression); err != nil {
			t.Fatal(err)
		}
		m := &amqp.Message{Annotations: amqp.Annotations{noteSequence: int64(42)}}
		if _, err := matchesWhere(where, m, NewShownMessage(m), "Own"); err == nil || !strings.Contains(err.Error(), "message 42") {
			t.Errorf("%s: got %v", expression, err)
		}
	}
}

// Members write the first number of a message only where it differs from its own.
func TestFirstNumberIsTheOwnOneWithoutAnnotation(t *testing.T) {
	t.Parallel()
	var where *filter.Expr
	if err := (whereFlag{&where}).Set("sys.EnqueuedSequenceNumber = 42"); err != nil {
		t.Fatal(err)
	}
	m := &amqp.Message{Annotations: amqp.Annotations{noteSequence: int64(42)}}
	if got, err := matchesWhere(where, m, NewShownMessage(m), "Own"); !got || err != nil {
		t.Errorf("got %t, %v", got, err)
	}
}
