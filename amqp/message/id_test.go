package message

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/kit"
)

func TestMessagesWithoutIDGetOne(t *testing.T) {
	t.Parallel()
	header := wire.AppendHeader(nil, &wire.Header{Durable: ptr(true)})
	body := section(nil, wire.SectionData, []byte("body"))
	application := section(nil, wire.SectionApplicationProperties, wire.Map{{Key: "a", Value: "b"}})
	subject := "s"
	properties := func(id any) []byte {
		return wire.AppendProperties(nil, &wire.Properties{MessageID: id, To: "there", Subject: &subject, UserID: []byte{1}})
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		message []byte
		given   bool
	}{
		"no properties":      {join(header, body), true},
		"body alone":         {body, true},
		"before application": {join(application, body), true},
		"null id":            {join(header, properties(nil), application, body), true},
		"text id":            {join(properties("x"), body), false},
		"empty id":           {join(properties(""), body), false},
		"number id":          {join(properties(uint64(0)), body), false},
		"uuid id":            {join(properties(wire.UUID{}), body), false},
		"garbage":            {[]byte("garbage"), false},
		"nothing":            {nil, false},
	} {
		got, ok := AppendWithID(nil, c.message)
		if ok != c.given {
			t.Errorf("%s: given %v", name, ok)
			continue
		}
		if !ok {
			continue
		}
		id := messageIDOf(t, got)
		if len(id) != 32 {
			t.Errorf("%s: id %q", name, id)
		}
		again, _ := AppendWithID(nil, c.message)
		if other := messageIDOf(t, again); other == id {
			t.Errorf("%s: the same id twice", name)
		}
		if !bytes.HasSuffix(got, body) {
			t.Errorf("%s: the body is not at the end", name)
		}
		parsed, err := Parse(got)
		if err != nil || parsed.ID != id {
			t.Errorf("%s: parsed id %q, %v", name, parsed.ID, err)
		}
	}
	got, _ := AppendWithID(nil, join(header, properties(nil), application, body))
	want := join(header, properties(messageIDOf(t, got)), application, body)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other properties changed: %s", diff)
	}
}

func messageIDOf(t *testing.T, message []byte) string {
	t.Helper()
	for rest := message; len(rest) > 0; {
		kind, value, _, behind, err := wire.NextSection(rest)
		if err != nil {
			t.Fatal(err)
		}
		if kind == wire.SectionProperties {
			p := kit.Must(wire.DecodeProperties(value))(t)
			id, _ := p.MessageID.(string)
			return id
		}
		rest = behind
	}
	return ""
}

func TestBatchesWithoutIDsGetThem(t *testing.T) {
	t.Parallel()
	with := bytes.Join([][]byte{wire.AppendProperties(nil, &wire.Properties{MessageID: "x"}), section(nil, wire.SectionData, []byte("1"))}, nil)
	without := section(nil, wire.SectionData, []byte("2"))
	data := func(b []byte) []byte { return section(nil, wire.SectionData, b) }
	if _, ok := AppendBatchWithIDs(nil, data(with)); ok {
		t.Error("changed a batch with ids")
	}
	got, ok := AppendBatchWithIDs(nil, bytes.Join([][]byte{data(without), data(with), data(without)}, nil))
	if !ok {
		t.Fatal("not changed")
	}
	messages, err := ParseBatch(got)
	if err != nil || len(messages) != 3 || len(messages[0].ID) != 32 || messages[1].ID != "x" || messages[2].ID == messages[0].ID {
		t.Errorf("%v %+v", err, messages)
	}
	if _, ok := AppendBatchWithIDs(nil, []byte("garbage")); ok {
		t.Error("changed garbage")
	}
}
