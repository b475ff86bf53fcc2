package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// Spans below a sampled parent reach the collector; others are not created. Without an endpoint there are no spans
// at all.
func TestSampledTracesAreExported(t *testing.T) {
	t.Parallel()
	got := make(chan []byte, 4)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		text, err := io.ReadAll(body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s, %s, %v", r.URL, r.Header, err)
		}
		got <- text
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	tracer, done, err := openTraces(t.Context(), collector.URL, "m0", "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string]trace.TraceFlags{"of a sampled sender": trace.FlagsSampled, "of another": 0} {
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags, Remote: true})
		_, span := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), parent), name)
		span.End()
	}
	_, span := tracer.Start(t.Context(), "of nobody")
	span.End()
	done()
	select {
	case text := <-got:
		for _, want := range []string{"of a sampled sender", "peeklock", "m0", "v1"} {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("no %q was sent", want)
			}
		}
		if bytes.Contains(text, []byte("of another")) || bytes.Contains(text, []byte("of nobody")) {
			t.Error("what nobody sampled was sent")
		}
	default:
		t.Error("nothing was sent")
	}
	if tracer, done, err = openTraces(t.Context(), "", "m0", "v1", nil); tracer != nil || err != nil {
		t.Error("a tracer that nobody asked for")
	}
	done()
}
