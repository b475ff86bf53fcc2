package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelresource "go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tracesCloseMax is how long spans that are left may take to be sent at the end.
const tracesCloseMax = 2 * time.Second

// tracerName names who made our spans.
const tracerName = "github.com/peeklock/peeklock"

func traceFlags(f *pflag.FlagSet) {
	f.String("otlp-endpoint", "", "URL of a collector that takes traces by OTLP over HTTP, like http://localhost:4318; headers by OTEL_EXPORTER_OTLP_HEADERS (default: no traces)")
}

func (s *settings) validateTraces() error {
	if s.OTLPEndpoint == "" {
		return nil
	}
	if u, err := url.Parse(s.OTLPEndpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usagef("otlp_endpoint: a URL like http://localhost:4318, not %q", s.OTLPEndpoint)
	}
	return nil
}

// openTraces begins to send spans to a collector; without an endpoint there is no tracer and nothing to
// close. Only what a sender has sampled is traced, so nobody gets traces who did not ask for them. A
// collector that is away costs lines in the log and lost spans (2,048 wait at most), never messages.
func openTraces(ctx context.Context, endpoint, member, version string, logger *slog.Logger) (tracer trace.Tracer, done func(), err error) {
	if endpoint == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("trace to %s: %w", endpoint, err)
	}
	few := slowLogger(logger.With("room", "traces"))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { few.WarnContext(ctx, "traces are not taken", "error", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithResource(otelresource.NewSchemaless(
			attribute.String("service.name", "peeklock"), attribute.String("service.instance.id", member), attribute.String("service.version", version))))
	return provider.Tracer(tracerName), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesCloseMax)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			logger.WarnContext(ctx, "traces are not ended", "error", err)
		}
	}, nil
}
