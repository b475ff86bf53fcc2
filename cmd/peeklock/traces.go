package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelresource "go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tracesCloseMax is how long sending the remaining spans may take at the end.
const tracesCloseMax = 2 * time.Second

// tracerName is the name of our instrumentation scope.
const tracerName = "github.com/peeklock/peeklock"

// openTraces starts to send spans to a collector; without an endpoint there is no tracer and nothing to close.
// Only operations that the sender has sampled are traced. If the collector is unavailable, the log gets lines and
// spans are lost (2,048 wait at most), but never messages.
func openTraces(ctx context.Context, endpoint, member, version string, logger *slog.Logger) (tracer trace.Tracer, done func(), err error) {
	if endpoint == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("trace to %s: %w", endpoint, err)
	}
	limited := rateLimited(logger.With("component", "traces"))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { limited.WarnContext(ctx, "failed to export traces", "error", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithResource(otelresource.NewSchemaless(
			attribute.String("service.name", "peeklock"), attribute.String("service.instance.id", member), attribute.String("service.version", version))))
	return provider.Tracer(tracerName), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesCloseMax)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			logger.WarnContext(ctx, "failed to flush traces", "error", err)
		}
	}, nil
}
