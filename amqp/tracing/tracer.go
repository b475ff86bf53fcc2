package tracing

import (
	"bytes"
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Official clients write the context of the sender to the application properties of a message, in the form of
// W3C Trace Context: .NET, Java and Python under traceparent and Diagnostic-Id, older clients, and those for
// JavaScript, only under Diagnostic-Id. The names are case-sensitive.
const (
	traceparentKey  = "traceparent"
	diagnosticIDKey = "Diagnostic-Id"
)

// Limits of tracing.
const (
	spansMax       = 32      // spans of one delivery or one disposition; no spans are created for further messages
	searchBytesMax = 8 << 10 // bytes of application properties that are searched
)

// Tracer creates spans for messages whose sender was sampled, and for no others. A message that is not traced
// costs the search for two names in its properties, or nothing if the tracer is nil. It is safe for concurrent use.
type Tracer struct{ inner trace.Tracer }

// New returns nil for a nil tracer.
func New(to trace.Tracer) *Tracer {
	if to == nil {
		return nil
	}
	return &Tracer{to}
}

// senderContext returns the span context of the sender of a stored message; it is invalid if the sender was
// not sampled.
func (t *Tracer) senderContext(payload []byte) trace.SpanContext {
	application, err := message.ApplicationProperties(payload)
	if err != nil || len(application) == 0 || len(application) > searchBytesMax {
		return trace.SpanContext{}
	}
	if !bytes.Contains(application, []byte(traceparentKey)) && !bytes.Contains(application, []byte(diagnosticIDKey)) {
		return trace.SpanContext{}
	}
	_, value, _, _, err := wire.NextSection(application)
	if err != nil {
		return trace.SpanContext{}
	}
	properties, err := wire.DecodeMap(value)
	if err != nil {
		return trace.SpanContext{}
	}
	for _, key := range []string{traceparentKey, diagnosticIDKey} {
		text, _ := properties.Get(key).(string)
		if sc := parseTraceparent(text); sc.IsSampled() {
			return sc
		}
	}
	return trace.SpanContext{}
}

// parseTraceparent reads version-trace-span-flags (W3C Trace Context, 3.2.2). Later versions may be
// longer; ff is invalid.
func parseTraceparent(s string) trace.SpanContext {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" ||
		len(s) > length && (s[:2] == "00" || s[length] != '-') {
		return trace.SpanContext{}
	}
	var flags [1]byte
	id, err := trace.TraceIDFromHex(s[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	span, err := trace.SpanIDFromHex(s[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	if _, err := hex.Decode(flags[:], []byte(s[53:length])); err != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]), Remote: true})
}

// start begins a span whose parent belongs to another process.
func (t *Tracer) start(name string, below trace.SpanContext, kind trace.SpanKind, path string, options ...trace.SpanStartOption) trace.Span {
	options = append(options, trace.WithSpanKind(kind), trace.WithAttributes(
		attribute.String("messaging.system", "servicebus"), attribute.String("messaging.destination.name", path)))
	_, span := t.inner.Start(trace.ContextWithRemoteSpanContext(context.Background(), below), name, options...)
	return span
}

// StartReceive begins the spans of messages from a client, one for each message whose sender was sampled.
func (t *Tracer) StartReceive(path string, messages []fsm.Message) (spans []trace.Span) {
	if t == nil {
		return nil
	}
	for i := range messages {
		if sc := t.senderContext(messages[i].Payload); sc.IsValid() && len(spans) < spansMax {
			spans = append(spans, t.start("receive from client", sc, trace.SpanKindServer, path))
		}
	}
	return spans
}

// End ends spans with the condition that the client got.
func End(spans []trace.Span, condition wire.Symbol) {
	for _, span := range spans {
		if condition != "" {
			span.SetStatus(codes.Error, string(condition))
		}
		span.End()
	}
}

// StartDeliver begins the span of a delivery, nil if the sender was not sampled. It is a child of the sender's
// span and is linked to it, because days may pass between them.
func (t *Tracer) StartDeliver(path string, d *fsm.Delivery) trace.Span {
	if t == nil {
		return nil
	}
	sc := t.senderContext(d.Payload)
	if !sc.IsValid() {
		return nil
	}
	span := t.start("deliver to client", sc, trace.SpanKindProducer, path, trace.WithLinks(trace.Link{SpanContext: sc}))
	span.SetAttributes(attribute.Int64("messaging.servicebus.message.delivery_count", int64(d.FailedDeliveries)+1))
	return span
}

// StartSettle begins the spans of n deliveries that a client settles, as children of the spans of the deliveries, nil for none. A
// settlement through $management has none: it names a lock, and another member may have made the delivery.
func (t *Tracer) StartSettle(path string, n int, delivered func(i int) *trace.SpanContext, verb fsm.Verb) (spans []trace.Span) {
	if t == nil {
		return nil
	}
	for i := range n {
		if of := delivered(i); of != nil && len(spans) < spansMax {
			span := t.start("settle", *of, trace.SpanKindServer, path)
			span.SetAttributes(attribute.String("messaging.servicebus.disposition_status", verbName(verb)))
			spans = append(spans, span)
		}
	}
	return spans
}

// verbName returns the term of the conventions for a settlement.
func verbName(verb fsm.Verb) string {
	switch verb {
	case fsm.Complete:
		return "complete"
	case fsm.Abandon:
		return "abandon"
	case fsm.Defer:
		return "defer"
	case fsm.DeadLetter:
		return "dead_letter"
	case fsm.Release:
		return "release"
	}
	return "unknown"
}
