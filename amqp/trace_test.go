package amqp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
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
		"too many":      {map[string]any{traceparentKey: sampled, "x": strings.Repeat("x", traceSearchBytesMax)}, false},
	} {
		m, err := message.Parse(traced(t, c.properties))
		if err != nil {
			t.Fatal(err)
		}
		if got := new(tracer).senderContext(m.Payload).IsValid(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if new(tracer).senderContext([]byte{99}).IsValid() {
		t.Error("damaged bytes have a sender")
	}
}

// TestSampledMessagesAreTraced checks that a message whose sender was sampled has spans where it is received,
// delivered and settled, all in the sender's trace, and that other messages have none.
func TestSampledMessagesAreTraced(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	p := loggedIn(t, newFakeBroker("orders"), func(c *Config) { c.Tracer = provider.Tracer("test") })
	p.sender(0, "orders")
	for id, properties := range []map[string]any{{traceparentKey: sampled}, {traceparentKey: notSampled}, nil} {
		p.transfer(0, uint32(id), traced(t, properties))
		p.accepted()
	}
	p.receiver(1, "orders")
	p.credit(1, 0, 3)
	for range 3 {
		expect[*wire.Transfer](p)
	}
	p.send(dispose(0, 2, false, &wire.Accepted{}))
	expect[*wire.Disposition](p)

	deadline, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(exporter.GetSpans()) < 3 && deadline.Err() == nil {
		<-tick.C
	}
	type seen struct {
		Name, Trace, Parent string
		Links               int
		Kind                trace.SpanKind
	}
	var got []seen
	delivery := ""
	for _, s := range exporter.GetSpans() {
		if s.Name == "deliver to client" {
			delivery = s.SpanContext.SpanID().String()
		}
		got = append(got, seen{s.Name, s.SpanContext.TraceID().String(), s.Parent.SpanID().String(), len(s.Links), s.SpanKind})
		if !slices.ContainsFunc(s.Attributes, func(kv attribute.KeyValue) bool {
			return kv.Key == "messaging.destination.name" && kv.Value.AsString() == "orders"
		}) {
			t.Errorf("%s does not say of what: %v", s.Name, s.Attributes)
		}
	}
	want := []seen{
		{"receive from client", traceOf, "00f067aa0ba902b7", 0, trace.SpanKindServer},
		{"deliver to client", traceOf, "00f067aa0ba902b7", 1, trace.SpanKindProducer},
		{"settle", traceOf, delivery, 0, trace.SpanKindServer},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Without a tracer no message is searched for a context, and nothing is allocated.
func TestWithoutTracerNothingIsAllocated(t *testing.T) { // not parallel: it counts allocations
	var off *tracer
	m, err := message.Parse(traced(t, map[string]any{traceparentKey: sampled}))
	if err != nil {
		t.Fatal(err)
	}
	messages, d := []fsm.Message{m}, fsm.Delivery{Payload: m.Payload}
	taken := []settledDelivery{{id: 1}}
	if n := testing.AllocsPerRun(100, func() {
		if off.startReceive("q", messages) != nil || off.startDeliver("q", &d) != nil || off.startSettle("q", taken, fsm.Complete) != nil {
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
	on := newTracer(provider.Tracer("test"))
	if spans := on.startReceive("q", slices.Repeat([]fsm.Message{m}, 2*traceSpansMax)); len(spans) != traceSpansMax {
		t.Errorf("%d spans", len(spans))
	}
	sc := trace.SpanContext{}
	if spans := on.startSettle("q", slices.Repeat([]settledDelivery{{unsettled: unsettled{delivered: &sc}}}, 2*traceSpansMax), fsm.Complete); len(spans) != traceSpansMax {
		t.Errorf("%d spans", len(spans))
	}
}

// BenchmarkTraceSearch measures the cost of a message that is not traced while others are.
func BenchmarkTraceSearch(b *testing.B) {
	m, err := message.Parse(traced(b, map[string]any{"customer": "C-1", "kind": "order", "total": 12.5}))
	if err != nil {
		b.Fatal(err)
	}
	on := new(tracer)
	b.ReportAllocs()
	for b.Loop() {
		if on.senderContext(m.Payload).IsValid() {
			b.Fatal("a sender")
		}
	}
}
