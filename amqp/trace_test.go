package amqp

import (
	"context"
	"slices"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/wire"
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

// TestSampledMessagesAreTraced checks that a message whose sender was sampled has spans where it is received,
// delivered and settled, all in the sender's trace, and that other messages have none.
func TestSampledMessagesAreTraced(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	p := loggedIn(t, newFakeBroker("orders"), func(c *Config) { c.Tracer = provider.Tracer("test") })
	p.sender(0, "orders")
	for id, properties := range []map[string]any{{"traceparent": sampled}, {"traceparent": notSampled}, nil} {
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
