package trace

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The attributes of spans. The names without the prefix dispatcher are those of the semantic conventions.
const (
	keyCallback = attribute.Key("dispatcher.callback.id")
	keyProject  = attribute.Key("dispatcher.project")
	keyKind     = attribute.Key("dispatcher.callback.kind")
	keyCount    = attribute.Key("dispatcher.callbacks")
	keyReplayed = attribute.Key("dispatcher.replayed")
	keyNumber   = attribute.Key("dispatcher.attempt.number")
	keyTrigger  = attribute.Key("dispatcher.attempt.trigger")
	keyClass    = attribute.Key("dispatcher.attempt.class")
	keyOutcome  = attribute.Key("dispatcher.attempt.outcome")
	keyCharged  = attribute.Key("dispatcher.attempt.charged")
	keyLateness = attribute.Key("dispatcher.attempt.lateness_ms")
	keyState    = attribute.Key("dispatcher.callback.state")
	keyReason   = attribute.Key("dispatcher.callback.reason")
	keyWon      = attribute.Key("dispatcher.result.won")
	keyLink     = attribute.Key("dispatcher.link")
	keyDuration = attribute.Key("duration_ms")

	keyMessage       = attribute.Key("messaging.message.id")
	keyOperation     = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyMethod        = attribute.Key("http.request.method")
	keyRoute         = attribute.Key("http.route")
	keyStatus        = attribute.Key("http.response.status_code")
	keyURL           = attribute.Key("url.full")
	keyServer        = attribute.Key("server.address")
	keyPort          = attribute.Key("server.port")
	keyError         = attribute.Key("error.type")
)

// system says which messaging system a span belongs to.
var system = attribute.String("messaging.system", "dispatcher")

// A Span is a span that is recorded. A nil *Span is not recorded, and its methods do nothing. A span that is
// not ended is not exported.
type Span struct {
	tracer *Tracer
	span   oteltrace.Span
	// request and settle are the children of an attempt, nil before Send and BeginSettle.
	request, settle *Span
	// ended is when a request has ended.
	ended time.Time
}

// Context returns the context of the span, nil for none.
func (s *Span) Context() Context {
	if s == nil {
		return nil
	}
	return contextOf(s.span.SpanContext())
}

// LogAttrs returns the ids of the span for a line of the log, none for no span.
func (s *Span) LogAttrs() []slog.Attr {
	if s == nil {
		return nil
	}
	c := s.span.SpanContext()
	return []slog.Attr{
		slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()),
	}
}

// Logger returns log with the ids of the span.
func (s *Span) Logger(log *slog.Logger) *slog.Logger {
	if s == nil {
		return log
	}
	return slog.New(log.Handler().WithAttrs(s.LogAttrs()))
}

// fail marks the span as failed. text is for people.
func (s *Span) fail(kind, text string) {
	s.span.SetStatus(codes.Error, text)
	s.span.SetAttributes(keyError.String(kind))
}

// Request begins the span of an API request that accepts callbacks. traceparent are the values of that
// header. The context is for the accept, also if the span is nil: callbacks then have the context of the
// caller, so that receivers get it.
func (t *Tracer) Request(
	ctx context.Context, traceparent []string, method, route string,
) (context.Context, *Span) {
	caller := Parse(traceparent)
	if t == nil && caller == nil {
		return ctx, nil
	}
	if caller == nil && !t.chosen() {
		return context.WithValue(ctx, requestKey{}, unrecorded), nil
	}
	r := &request{creation: caller}
	if t != nil && (caller.Sampled() || caller == nil) {
		r.span = t.start(method+" "+route, oteltrace.SpanKindServer, caller.spanContext(true),
			oteltrace.WithAttributes(keyMethod.String(method), keyRoute.String(route)))
		r.creation = r.span.Context()
	}
	return context.WithValue(ctx, requestKey{}, r), r.span
}

// EndRequest ends the span of an API request with the status of its response.
func (s *Span) EndRequest(status int) {
	if s == nil {
		return
	}
	s.span.SetAttributes(keyStatus.Int(status))
	if status >= http.StatusInternalServerError {
		s.fail(strconv.Itoa(status), "")
	}
	s.span.End()
}

// maxCreated is the most PRODUCER spans of one accept. Further callbacks of a batch have the context of the
// request's span.
const maxCreated = 100

// A Creation are the spans of the callbacks that one accept creates.
type Creation struct {
	request *Span
	// created has the span of each draft, as far as it has one.
	created []*Span
}

// Create gives the drafts of one accept their trace contexts, before they are committed. Without a request,
// as for the events of the dispatcher itself, the callbacks are chosen by the ratio, and each has a trace of
// its own. The creation is ended by End, or dropped if nothing was accepted.
func (t *Tracer) Create(ctx context.Context, drafts []store.Draft) *Creation {
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		if !t.chosen() {
			return nil
		}
		r = new(request)
	}
	for i := range drafts {
		drafts[i].Callback.TraceContext = r.creation
	}
	if ok && r.span == nil {
		return nil
	}
	c := &Creation{request: r.span}
	if r.span != nil && len(drafts) == 1 {
		return c
	}
	for i := range drafts[:min(len(drafts), maxCreated)] {
		s := t.start("create", oteltrace.SpanKindProducer, r.creation.spanContext(false),
			oteltrace.WithAttributes(system, keyOperation.String("create"),
				keyOperationType.String("create")))
		c.created = append(c.created, s)
		drafts[i].Callback.TraceContext = s.Context()
	}
	return c
}

// End ends the spans of an accept with the results of its drafts, in their order. Spans of drafts that were
// refused or replayed are dropped.
func (c *Creation) End(accepted []store.Accepted) {
	if c == nil || len(accepted) == 0 {
		return
	}
	if c.request != nil {
		first := &accepted[0].Callback
		c.request.span.SetAttributes(keyProject.String(first.Project), keyCount.Int(len(accepted)))
		if len(accepted) == 1 && accepted[0].Err == nil {
			c.request.span.SetAttributes(keyCallback.String(store.CallbackPrefix+first.ID),
				keyKind.String(string(first.Kind)), keyReplayed.Bool(accepted[0].Replayed))
		}
	}
	for i, s := range c.created {
		a := &accepted[i]
		if a.Err != nil || a.Replayed {
			continue
		}
		s.span.SetAttributes(keyMessage.String(store.CallbackPrefix+a.Callback.ID),
			keyCallback.String(store.CallbackPrefix+a.Callback.ID), keyProject.String(a.Callback.Project),
			keyKind.String(string(a.Callback.Kind)))
		s.span.End()
	}
}

// Steps are the times of the steps that all callbacks of a claim have in common. A nil *Steps keeps none.
type Steps struct{ locked, stamped time.Time }

// NewSteps returns the steps of a claim.
func (t *Tracer) NewSteps() *Steps {
	if t == nil {
		return nil
	}
	return new(Steps)
}

// Locked notes that the locks of the claim were acquired.
func (s *Steps) Locked() {
	if s != nil {
		s.locked = time.Now()
	}
}

// Stamped notes that the callbacks of the claim were stamped. Afterwards the steps do not change.
func (s *Steps) Stamped() {
	if s != nil {
		s.stamped = time.Now()
	}
}

// Attempt begins the span of the attempt of a stamped callback, if the span that created it is recorded. The
// span begins at the claim. locked: the callback has a lock. steps may be nil.
func (t *Tracer) Attempt(cb *store.Stamped, claimed time.Time, steps *Steps, locked bool) *Span {
	created := Context(cb.TraceContext)
	if t == nil || !created.Sampled() {
		return nil
	}
	id := store.CallbackPrefix + cb.ID
	links := []oteltrace.Link{link(created, "created")}
	if cb.AttemptSeq > 0 {
		links = append(links, link(attemptContext(created, cb.ID, cb.AttemptSeq), "previous attempt"))
	}
	number := cb.AttemptSeq + 1
	chosen := attemptContext(created, cb.ID, number)
	_, s := t.tracer.Start(context.WithValue(context.Background(), chosenKey{}, chosen), "attempt",
		oteltrace.WithSpanKind(oteltrace.SpanKindConsumer), oteltrace.WithTimestamp(claimed),
		oteltrace.WithLinks(links...), oteltrace.WithAttributes(system, keyOperation.String("attempt"),
			keyOperationType.String("process"), keyMessage.String(id), keyCallback.String(id),
			keyProject.String(cb.Project), keyKind.String(string(cb.Kind)),
			keyNumber.Int(number), keyTrigger.String(string(cb.Trigger))))
	s.AddEvent("claimed", oteltrace.WithTimestamp(claimed))
	if steps != nil {
		if locked {
			s.AddEvent("locked", oteltrace.WithTimestamp(steps.locked))
		}
		s.AddEvent("stamped", oteltrace.WithTimestamp(steps.stamped))
	}
	return &Span{tracer: t, span: s}
}

func link(to Context, what string) oteltrace.Link {
	return oteltrace.Link{
		SpanContext: to.spanContext(true), Attributes: []attribute.KeyValue{keyLink.String(what)},
	}
}

// Send begins the child of an attempt for its request. The receiver gets its context. The query values and
// the credentials of the URL are masked.
func (s *Span) Send(method, rawURL string) *Span {
	if s == nil {
		return nil
	}
	about := []attribute.KeyValue{keyMethod.String(method), keyURL.String(store.MaskURL(rawURL))}
	if u, err := url.Parse(rawURL); err == nil {
		about = append(about, keyServer.String(u.Hostname()))
		if port, err := strconv.Atoi(u.Port()); err == nil {
			about = append(about, keyPort.Int(port))
		}
	}
	s.request = s.tracer.start(method, oteltrace.SpanKindClient, s.span.SpanContext(),
		oteltrace.WithAttributes(about...))
	return s.request
}

// A Response is what the span of a request gets from its response. Error is for people, without secrets.
type Response struct {
	Status             int
	Class              store.Class
	Error              string
	StartedAt, EndedAt time.Time
	Timings            store.Timings
}

// EndSend describes a request by its response. The end of each phase is an event. EndSettle ends the span.
func (s *Span) EndSend(r Response) {
	if s == nil {
		return
	}
	if r.Status != 0 {
		s.span.SetAttributes(keyStatus.Int(r.Status))
	}
	if r.Class != store.ClassOK {
		s.fail(string(r.Class), r.Error)
	}
	at := 0.0
	for _, phase := range []struct {
		name string
		ms   float64
	}{{"dns", r.Timings.DNS}, {"connect", r.Timings.Connect}, {"tls", r.Timings.TLS}} {
		at += phase.ms
		s.phase(phase.name, &r, at, phase.ms)
	}
	s.phase("first byte", &r, r.Timings.FirstByte, r.Timings.FirstByte)
	s.ended = r.EndedAt
}

// phase adds an event for a phase of a request that took took and ended at after the start, both in
// milliseconds.
func (s *Span) phase(name string, r *Response, at, took float64) {
	if took <= 0 {
		return
	}
	ended := r.StartedAt.Add(time.Duration(at * float64(time.Millisecond)))
	s.span.AddEvent(name, oteltrace.WithTimestamp(ended),
		oteltrace.WithAttributes(keyDuration.Float64(took)))
}

// BeginSettle describes an attempt by its result, which has an attempt to record, and begins the child for
// the commit.
func (s *Span) BeginSettle(r *store.Result) {
	if s == nil {
		return
	}
	a := r.Attempt
	s.span.SetAttributes(keyClass.String(string(a.Class)), keyOutcome.String(string(a.Outcome)),
		keyCharged.Bool(a.Charged), keyLateness.Float64(a.Lateness))
	if a.Status != 0 {
		s.span.SetAttributes(keyStatus.Int(a.Status))
	}
	if a.Outcome != store.AttemptSucceeded {
		s.fail(string(a.Class), a.Error)
	}
	s.settle = s.tracer.start("settle", oteltrace.SpanKindInternal, s.span.SpanContext())
}

// Committed records the reply of SQL to the result of an attempt. A result that has not won had no effect.
func (s *Span) Committed(c *store.Committed) {
	if s == nil {
		return
	}
	s.settle.span.AddEvent("committed")
	s.span.SetAttributes(keyWon.Bool(c.Won), keyState.String(string(c.State)))
}

// Uncommitted records that SQL refused the result of an attempt.
func (s *Span) Uncommitted() {
	if s != nil {
		s.settle.fail("sql", "the result cannot be recorded")
	}
}

// EndSettle ends an attempt, its request and its settle. An attempt that has no row in SQL is not settled:
// its spans are dropped.
func (s *Span) EndSettle() {
	if s == nil {
		return
	}
	if r := s.request; r != nil && !r.ended.IsZero() { // zero: the attempt panicked
		r.span.End(oteltrace.WithTimestamp(r.ended))
	}
	s.settle.span.End()
	s.span.End()
}
