package dataplane

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
)

const sampleToken = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"

// Method and path decide, in any case of the words; everything else stays with administration and the control API.
func TestMethodAndPathDecide(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]struct {
		do string
		target
	}{
		"POST /q/messages":                                   {"send", target{entity: "q"}},
		"POST /a/b/Messages?api-version=2021-05":             {"send", target{entity: "a/b"}},
		"POST /t/subscriptions/s/messages/HEAD":              {"peekLock", target{entity: "t/subscriptions/s"}},
		"DELETE /q/$DeadLetterQueue/messages/head?timeout=1": {"receiveAndDelete", target{entity: "q/$DeadLetterQueue"}},
		"DELETE /q/messages/7/" + sampleToken:                {"complete", target{entity: "q", id: "7"}},
		"PUT /q/messages/a%2Fb/" + sampleToken:               {"unlock", target{entity: "q", id: "a/b"}},
		"POST /q/messages/7/" + sampleToken:                  {"renew", target{entity: "q", id: "7"}},
		"POST /q/messages/head/messages":                     {"send", target{entity: "q/messages/head"}},
	} {
		method, url, _ := strings.Cut(request, " ")
		got, ok := parse(httptest.NewRequest(method, url, nil))
		if do := got.do; !ok || do.Name != want.do || (target{entity: got.entity, id: got.id}) != want.target {
			t.Errorf("%s: %+v, %v, want %+v", request, got, ok, want)
		}
	}
	for _, request := range []string{
		"PUT /q/messages", "GET /q/messages", "DELETE /q/messages", "PUT /q/messages/head", "GET /q/messages/head", "PUT /q/messages/a/b",
		"POST /v1/purge/orders/messages", "POST /messages", "PUT /t/Subscriptions/s/Rules/r", "POST /t/Subscriptions/s/Rules",
	} {
		method, url, _ := strings.Cut(request, " ")
		if got, ok := parse(httptest.NewRequest(method, url, nil)); ok {
			t.Errorf("%s: %+v", request, got)
		}
	}
}

// Properties are written in a header as they are read from one, and text that needs escapes survives.
func TestHeadersKeepTheTypeOfProperties(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]any{
		`"High"`: "High", `"say \"yes\""`: `say "yes"`, `7`: int64(7), `-1.5`: -1.5, `true`: true, `False`: false, `""`: "",
		`"Fri, 20 Nov 2026 12:00:00 GMT"`: noon, `bare`: "bare", `"7"`: "7",
	} {
		if diff := cmp.Diff(want, headerValue(text)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		written, ok := headerText(want)
		if again := headerValue(written); !ok || cmp.Diff(want, again) != "" {
			t.Errorf("%v is written as %s, which reads as %v", want, written, again)
		}
	}
	for _, v := range []any{nil, []any{1}, wire.Map{}} {
		if text, ok := headerText(v); ok {
			t.Errorf("%v is written as %s", v, text)
		}
	}
	header := http.Header{"Priority": {`"High"`}, "Content-Type": {"x"}, "User-Agent": {"x"}, "X-Forwarded-For": {"x"}, "Customer": {`"12345"`, "ABC"}}
	want := wire.Map{{Key: "customer", Value: `"12345",ABC`}, {Key: "pRIORITY", Value: "High"}}
	got := customProperties(header, func(name string) string {
		return map[string]string{"Priority": "pRIORITY", "Customer": "customer"}[name]
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The JSON form keeps the type of every value, and the time of a message that is not due yet.
func TestFormsOfMessagesAreRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	encoded, err := readForms([]byte(`[{"messageId":{"ulong":7},"properties":{"n":{"int":7},"t":"x"},"value":{"list":[{"long":1}]},"sequenceNumber":4,"state":"scheduled","scheduledFor":"2026-11-20T13:00:00Z"},`+
		`{"body":"b","scheduledFor":"2026-11-20T11:00:00Z"}]`), now)
	if err != nil || len(encoded) != 2 {
		t.Fatalf("%d messages, %v; want 2", len(encoded), err)
	}
	first, _, err := jsonmessage.Parse(encoded[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	if first.MessageID.Go != uint64(7) || first.Properties["n"].Go != int32(7) || first.Properties["t"].Go != "x" || cmp.Diff([]any{int64(1)}, first.Value.Go) != "" ||
		first.Annotations["x-opt-scheduled-enqueue-time"].Go != now.Add(time.Hour) {
		t.Errorf("%+v", first)
	}
	if second, _, err := jsonmessage.Parse(encoded[1], 0); err != nil || *second.Body != "b" || second.Annotations != nil {
		t.Errorf("%+v, %v; want a body and no annotation", second, err)
	}
	for _, text := range []string{``, `{}`, `[]`, `[{"body":"x"}`, `[{"body":"x","value":"y"}]`, `[{"properties":{"n":{"int":2147483648}}}]`, `[7]`, `[` + strings.Repeat(`{},`, message.BatchMessagesMax) + `{}]`} {
		if _, err := readForms([]byte(text), now); err == nil {
			t.Errorf("%.60s was read", text)
		}
	}
}

func TestBrokerPropertiesAreRead(t *testing.T) {
	t.Parallel()
	var b brokerProperties
	err := b.read([]byte(`{"messageId":"m","Label":"l","SessionId":"s","TimeToLive":1.5,"ScheduledEnqueueTimeUtc":"Fri, 20 Nov 2026 12:00:00 GMT","PartitionKey":"p","CorrelationId":7,"State":"Active","To":null}`))
	if err != nil {
		t.Fatal(err)
	}
	if *b.MessageID != "m" || *b.Label != "l" || *b.SessionID != "s" || *b.PartitionKey != "p" || *b.CorrelationID != "7" || b.To != nil ||
		b.TimeToLive != 1500*time.Millisecond || b.ScheduledAt != time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) {
		t.Errorf("%+v", b)
	}
	for text, want := range map[string]time.Duration{
		`{"TimeToLiveTimeSpan":"00:00:10"}`: 10 * time.Second, `{"TimeToLiveTimeSpan":"1.02:03:04.5"}`: 26*time.Hour + 3*time.Minute + 4500*time.Millisecond,
		`{"TimeToLive":922337203685.47754}`: 0, `{"TimeToLiveTimeSpan":"10675199.02:48:05.4775807"}`: 0,
	} {
		b := brokerProperties{}
		if err := b.read([]byte(text)); err != nil || b.TimeToLive != want {
			t.Errorf("%s: %s, %v, want %s", text, b.TimeToLive, err, want)
		}
	}
	for _, text := range []string{`[]`, `{`, `{"TimeToLive":"x"}`, `{"TimeToLive":-1}`, `{"TimeToLiveTimeSpan":"25:00:00"}`, `{"ScheduledEnqueueTimeUtc":"soon"}`} {
		if err := new(brokerProperties).read([]byte(text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

// Every body can be answered: bytes and texts as they are, other values as JSON.
func TestEveryBodyIsDefined(t *testing.T) {
	t.Parallel()
	for want, sections := range map[string][]any{
		"ab": {[]byte("a"), []byte("b")}, "text": {"text"}, "": {nil}, "7": {int32(7)}, `[1,"a",null]`: {[]any{int64(1), "a", nil}},
		`{"k":true}`: {wire.Map{{Key: "k", Value: true}}}, "NaN": {math.NaN()}, `"00000000-0000-0000-0000-000000000001"`: {wire.UUID{15: 1}},
		`[1][2]`: {[]any{int8(1)}, []any{int8(2)}},
	} {
		b := body{sections}
		if got := string(b.bytes()); got != want {
			t.Errorf("%v is %s, want %s", sections, got, want)
		}
	}
}

func TestHeadersOfBrokerPropertiesAreASCII(t *testing.T) {
	t.Parallel()
	if got, want := asciiJSON([]byte(`{"Label":"ä€😀"}`)), `{"Label":"\u00e4\u20ac\ud83d\ude00"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestLockTokensAreGUIDs(t *testing.T) {
	t.Parallel()
	token, ok := parseToken("7DA9CFD5-40d5-4bb1-8d64-ec5a52e1c547")
	if got := formatToken(token); !ok || got != sampleToken {
		t.Errorf("%s, %v", got, ok)
	}
	for _, text := range []string{"", "x", sampleToken[1:], "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c54g", "7da9cfd5-40d5-4bb1-8d64-ec5a52e1-547"} {
		if _, ok := parseToken(text); ok {
			t.Errorf("%q is a token", text)
		}
	}
}
