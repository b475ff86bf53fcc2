package tracing

import (
	"slices"
	"strings"
	"testing"

	goamqp "github.com/Azure/go-amqp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
)

const (
	traceOf    = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled    = "00-" + traceOf + "-00f067aa0ba902b7-01"
	notSampled = "00-" + traceOf + "-00f067aa0ba902b7-00"
)

// traced returns a message in the encoding of an SDK.
func traced(t testing.TB, properties map[string]any) []byte {
	t.Helper()
	encoded, err := (&goamqp.Message{Data: [][]byte{[]byte("body")}, ApplicationProperties: properties}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func TestTraceparentIsParsedStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		sampled: true, notSampled: true, "01" + sampled[2:] + "-what comes later": true, "01" + sampled[2:]: true,
		"": false, "ff" + sampled[2:]: false, sampled + "-x": false, sampled[:54]: false, "01" + sampled[2:] + "x": false,
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01":  false,
		"00-" + traceOf + "-" + strings.Repeat("0", 16) + "-01":   false,
		"00-" + strings.ToUpper(traceOf) + "-00f067aa0ba902b7-01": false,
		"00-" + traceOf + "-00f067aa0ba902b7-zz":                  false,
		"|7e83e3c1-4b5a2d3c4e5f6071.1.":                           false, // of .NET before W3C
	} {
		sc := parseTraceparent(text)
		if sc.IsValid() != want || want && (sc.TraceID().String() != traceOf || !sc.IsRemote()) || sc.IsSampled() && text == notSampled {
			t.Errorf("%q: %+v", text, sc)
		}
	}
}

// The context of the sender is found where SDKs write it, and nothing is found elsewhere.
func TestSenderOfAMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		properties map[string]any
		want       bool
	}{
		"traceparent":   {map[string]any{"a": 1, traceparentKey: sampled}, true},
		"Diagnostic-Id": {map[string]any{diagnosticIDKey: sampled, "b": "c"}, true},
		"both":          {map[string]any{diagnosticIDKey: "|1.", traceparentKey: sampled}, true},
		"not sampled":   {map[string]any{traceparentKey: notSampled}, false},
		"none":          {nil, false},
		"others":        {map[string]any{"x": sampled}, false},
		"as a value":    {map[string]any{"x": traceparentKey, "y": sampled}, false},
		"no text":       {map[string]any{traceparentKey: int64(7)}, false},
		"too many":      {map[string]any{traceparentKey: sampled, "x": strings.Repeat("x", searchBytesMax)}, false},
	} {
		m, err := message.Parse(traced(t, c.properties))
		if err != nil {
			t.Fatal(err)
		}
		if got := new(Tracer).senderContext(m.Payload).IsValid(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if new(Tracer).senderContext([]byte{99}).IsValid() {
		t.Error("damaged bytes have a sender")
	}
}

// Without a tracer no message is searched for a context, and nothing is allocated.
func TestWithoutTracerNothingIsAllocated(t *testing.T) { // not parallel: it counts allocations
	var off *Tracer
	m, err := message.Parse(traced(t, map[string]any{traceparentKey: sampled}))
	if err != nil {
		t.Fatal(err)
	}
	messages, d := []fsm.Message{m}, fsm.Delivery{Payload: m.Payload}
	taken := make([]*trace.SpanContext, 1)
	if n := testing.AllocsPerRun(100, func() {
		if off.StartReceive("q", messages) != nil || off.StartDeliver("q", &d) != nil || off.StartSettle("q", len(taken), func(i int) *trace.SpanContext { return taken[i] }, fsm.Complete) != nil {
			t.Error("spans of nobody")
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// A batch of thousands creates a limited number of spans.
func TestSpansAreBounded(t *testing.T) {
	t.Parallel()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	m, err := message.Parse(traced(t, map[string]any{traceparentKey: sampled}))
	if err != nil {
		t.Fatal(err)
	}
	on := New(provider.Tracer("test"))
	if spans := on.StartReceive("q", slices.Repeat([]fsm.Message{m}, 2*spansMax)); len(spans) != spansMax {
		t.Errorf("%d spans", len(spans))
	}
	sc := trace.SpanContext{}
	if spans := on.StartSettle("q", 2*spansMax, func(int) *trace.SpanContext { return &sc }, fsm.Complete); len(spans) != spansMax {
		t.Errorf("%d spans", len(spans))
	}
}

// BenchmarkTraceSearch measures the cost of a message that is not traced while others are.
func BenchmarkTraceSearch(b *testing.B) {
	m, err := message.Parse(traced(b, map[string]any{"customer": "C-1", "kind": "order", "total": 12.5}))
	if err != nil {
		b.Fatal(err)
	}
	on := new(Tracer)
	b.ReportAllocs()
	for b.Loop() {
		if on.senderContext(m.Payload).IsValid() {
			b.Fatal("a sender")
		}
	}
}
