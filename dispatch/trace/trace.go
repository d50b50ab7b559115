// Package trace records spans of accepts and attempts, and exports them to a collector by OTLP over HTTP. It
// is the only package that knows OpenTelemetry.
//
// A retry schedule lasts longer than backends keep a trace open, so an attempt is not a child of its accept.
// It is the root of its own trace, and links to the span that created the callback and to the attempt before:
//
//	POST /v1/callbacks   SERVER    child of the caller's span; it creates the callback
//	  create             PRODUCER  one for each callback of a batch or an event
//	attempt              CONSUMER  a root with links; events claimed, locked and stamped
//	  POST               CLIENT    the request; its context is the header traceparent that the receiver gets
//	  settle             INTERNAL  from the end of the request until the index has the result
//
// The span that creates a callback decides whether it is recorded. Its attempts follow it, so a callback is
// recorded completely or not at all.
//
// All methods accept a nil *Tracer and a nil *Span, and then do nothing. Spans never contain bodies, headers,
// query values or references of the business. A collector that hangs or refuses costs spans, and never
// delays an accept or an attempt.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// Options configure a Tracer.
type Options struct {
	// Endpoint is the URL of a collector, see CheckEndpoint. Empty: nothing is recorded.
	Endpoint string
	// Headers are sent with each export, each as name=value, see CheckHeader. They are secret.
	Headers []string
	// Ratio is the fraction of callbacks that are recorded if their caller sent no traceparent, from 0 to 1.
	// A traceparent decides by its flag.
	Ratio float64
	// Version of the program.
	Version string
	Logger  *slog.Logger
	Metrics process.Metrics
}

// Bounds of what is recorded. A span that finds queueSize spans waiting is dropped.
const (
	queueSize  = 2048
	batchSize  = 512
	batchDelay = 2 * time.Second
	// maxAttribute is the most bytes of one text in a span.
	maxAttribute = 1024
)

// A Tracer records spans. It is safe for concurrent use.
type Tracer struct {
	ratio    float64
	provider *sdk.TracerProvider
	tracer   oteltrace.Tracer
	exporter *exporter
}

// New returns a tracer, which the caller closes. It returns nil if no endpoint is set. It does not connect to
// the collector.
func New(ctx context.Context, o Options) (*Tracer, error) {
	failures := o.Metrics.Counter("trace_export_failures_total",
		"Exports of spans that failed. The spans of a failed export are lost.")
	if o.Endpoint == "" {
		return nil, nil
	}
	e, err := newExporter(ctx, &o, failures)
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	about, err := describe(ctx, o.Version)
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(e, sdk.WithMaxQueueSize(queueSize), sdk.WithMaxExportBatchSize(batchSize),
			sdk.WithBatchTimeout(batchDelay), sdk.WithExportTimeout(exportTimeout)),
		sdk.WithResource(about),
		// Tracer itself decides, so that an unrecorded callback costs no allocation.
		sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithIDGenerator(ids{}),
		sdk.WithRawSpanLimits(limits),
	)
	return &Tracer{
		ratio: o.Ratio, provider: provider, exporter: e,
		tracer: provider.Tracer("github.com/seed-ff5a32d8/dispatcher",
			oteltrace.WithInstrumentationVersion(o.Version)),
	}, nil
}

// describe returns the attributes of this process. The variables OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES replace and add some.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	var instance [8]byte
	if _, err := rand.Read(instance[:]); err != nil {
		return nil, err
	}
	return resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "dispatcher"),
		attribute.String("service.version", version),
		attribute.String("service.instance.id", hex.EncodeToString(instance[:])),
	), resource.WithFromEnv())
}

// Close exports the recorded spans within the limit and drops the rest. No span may be started afterwards. A
// second call does nothing.
func (t *Tracer) Close(limit time.Duration) {
	if t == nil {
		return
	}
	stop := time.AfterFunc(max(limit, 0), t.exporter.stop)
	defer stop.Stop()
	// The exporter itself reports failures, and without one a shutdown has no error.
	_ = t.provider.Shutdown(context.Background())
	t.exporter.stop()
}

// chosen decides whether a callback without a caller's span is recorded.
func (t *Tracer) chosen() bool { return t != nil && mathrand.Float64() < t.ratio }

// start starts a span below parent, which may be no span.
func (t *Tracer) start(
	name string, kind oteltrace.SpanKind, parent oteltrace.SpanContext, options ...oteltrace.SpanStartOption,
) *Span {
	ctx := oteltrace.ContextWithSpanContext(context.Background(), parent)
	_, s := t.tracer.Start(ctx, name, append(options, oteltrace.WithSpanKind(kind))...)
	return &Span{tracer: t, span: s}
}

// ids makes random ids, except for a span whose context was chosen before.
type ids struct{}

type chosenKey struct{}

// NewIDs returns the ids of a root span.
func (g ids) NewIDs(ctx context.Context) (trace oteltrace.TraceID, span oteltrace.SpanID) {
	if c, ok := ctx.Value(chosenKey{}).(Context); ok {
		return oteltrace.TraceID(c[:spanAt]), oteltrace.SpanID(c[spanAt:flagsAt])
	}
	for !trace.IsValid() {
		randomBytes(trace[:])
	}
	return trace, g.NewSpanID(ctx, trace)
}

// NewSpanID returns the id of a span within a trace.
func (ids) NewSpanID(context.Context, oteltrace.TraceID) (span oteltrace.SpanID) {
	for !span.IsValid() {
		randomBytes(span[:])
	}
	return span
}

// randomBytes fills b, whose length is a multiple of eight.
func randomBytes(b []byte) {
	for ; len(b) > 0; b = b[8:] {
		n := mathrand.Uint64()
		for i := range 8 {
			b[i] = byte(n >> (8 * i))
		}
	}
}
