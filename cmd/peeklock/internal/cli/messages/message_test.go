package messages

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
)

func TestMessagesArePrintedWhole(t *testing.T) {
	t.Parallel()
	subject := "s"
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.FixedZone("east", 3600))
	utc := at.UTC()
	for name, c := range map[string]struct {
		message *amqp.Message
		want    *ShownMessage
	}{
		"whole": {
			&amqp.Message{
				Header:                &amqp.MessageHeader{DeliveryCount: 2},
				Annotations:           amqp.Annotations{noteSequence: int64(7), noteEnqueued: at, noteLockedUntil: at},
				Properties:            &amqp.MessageProperties{MessageID: "id", Subject: &subject},
				ApplicationProperties: map[string]any{"k": "v"},
				Data:                  [][]byte{[]byte("he"), []byte("llo")},
			},
			&ShownMessage{Sequence: 7, ID: "id", DeliveryCount: 2, Enqueued: &utc, LockedUntil: &utc, Subject: "s", Properties: map[string]any{"k": "v"}, Body: "hello"},
		},
		"not text":   {&amqp.Message{Data: [][]byte{{0xff, 0x00}}}, &ShownMessage{BodyBase64: "/wA="}},
		"value":      {&amqp.Message{Value: int64(5)}, &ShownMessage{Body: "5"}},
		"empty":      {&amqp.Message{}, &ShownMessage{}},
		"wrong type": {&amqp.Message{Annotations: amqp.Annotations{noteSequence: "7", noteEnqueued: 7}}, &ShownMessage{}},
	} {
		if diff := cmp.Diff(c.want, NewShownMessage(c.message)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// After := a property has a type, which is its type on the wire.
func TestPropertyAfterColonEqualsHasAType(t *testing.T) {
	t.Parallel()
	o := sendOptions{count: 1, properties: []string{
		"s=7", "i:=7", "d:=7.0", "b:=true", "n:=null", `t:="x=y"`, "e=a=b", `g:={"type":"guid","value":"00000000-0000-0000-0000-000000000001"}`,
		`at:={"type":"time","value":"2026-11-20T12:00:00Z"}`, `raw:={"type":"binary","value":"AAE="}`,
	}}
	m, err := o.template()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"s": "7", "i": int64(7), "d": 7.0, "b": true, "n": nil, "t": "x=y", "e": "a=b", "g": amqp.UUID{15: 1},
		"at": time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), "raw": []byte{0, 1},
	}
	if diff := cmp.Diff(want, m.ApplicationProperties); diff != "" {
		t.Error(diff)
	}
	for _, pair := range []string{"", "=", ":=7", "a", "a:=", "a:=x", "a:=[1]"} {
		if _, _, err := command.TypedPair("--property", pair); err == nil {
			t.Errorf("%q was accepted", pair)
		}
	}
}

func TestBodiesComeFromArgumentsSizeOrInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options sendOptions
		args    []string
		in      string
		want    []string
		fails   bool
	}{
		"arguments": {sendOptions{count: 2}, []string{"a", "b"}, "ignored\n", []string{"a", "a", "b", "b"}, false},
		"lines":     {sendOptions{count: 1}, nil, "a\n\nb", []string{"a", "", "b"}, false},
		"generated": {sendOptions{count: 1, size: 28}, nil, "ignored", []string{FillerAlphabet + "ab"}, false},
		"long line": {sendOptions{count: 1}, nil, "a\n" + strings.Repeat("x", lineBytesMax+1), []string{"a"}, true},
	} {
		var got []string
		failed := false
		for body, err := range c.options.bodies(strings.NewReader(c.in), c.args) {
			if failed = err != nil; !failed {
				got = append(got, string(body))
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || failed != c.fails {
			t.Errorf("%s: failed %t, %s", name, failed, diff)
		}
	}
	o := sendOptions{count: 1, properties: make([]string, propertyTotal+1)}
	if _, err := o.template(); err == nil {
		t.Error("more properties than the limit")
	}
}

// Scripts decide what to retry by this outcome: only a refusal is certain.
func TestSendsReportUnknownOutcomes(t *testing.T) {
	t.Parallel()
	answer := &amqp.Error{Condition: amqp.ErrCondNotFound, Description: "gone"}
	var s sendWindowState
	for _, err := range []error{nil, nil, gateway.ClassifyOutcome(&amqp.StateRejected{Error: answer}), answer, &amqp.LinkError{RemoteErr: answer}, &amqp.ConnError{}, context.DeadlineExceeded, io.ErrUnexpectedEOF} {
		s.count(err)
	}
	if s.confirmed != 2 || s.unknown != 4 || !errors.Is(s.first, answer) {
		t.Errorf("%d confirmed, %d unknown, first %v", s.confirmed, s.unknown, s.first)
	}
	if got := gateway.PlainError(&amqp.LinkError{RemoteErr: answer}).Error(); got != "gone (amqp:not-found)" {
		t.Error(got)
	}
}
