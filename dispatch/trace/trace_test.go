package trace_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A world is a tracer with its collector, its log and its metrics.
type world struct {
	*trace.Tracer
	collector *testserver.Collector
	log       *bytes.Buffer
	metrics   *prometheus.Registry
}

func newWorld(t *testing.T, ratio float64, headers ...string) *world {
	t.Helper()
	w := &world{
		collector: testserver.NewCollector(t), log: new(bytes.Buffer), metrics: prometheus.NewRegistry(),
	}
	var err error
	w.Tracer, err = trace.New(t.Context(), trace.Options{
		Endpoint: w.collector.URL, Headers: headers, Ratio: ratio, Version: "1.2.3",
		Logger:  slog.New(slog.NewTextHandler(w.log, nil)),
		Metrics: process.Metrics{Registerer: w.metrics},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(0) })
	return w
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	const ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for text, want := range map[string]string{
		"00-" + ids + "-01": "00-" + ids + "-01",
		"00-" + ids + "-00": "00-" + ids + "-00",
		// The random flag is kept. Flags that version 00 does not know are not.
		"00-" + ids + "-03": "00-" + ids + "-03",
		"00-" + ids + "-ff": "00-" + ids + "-03",
		// A later version may be longer. Of its flags only the first is known.
		"01-" + ids + "-01-more":             "00-" + ids + "-01",
		"cc-" + ids + "-fe":                  "00-" + ids + "-00",
		"":                                   "",
		"00":                                 "",
		"00-" + ids:                          "",
		"00-" + ids + "-1":                   "",
		"00-" + ids + "-0g":                  "",
		"00-" + ids + "-01-more":             "",
		"01-" + ids + "-01more":              "",
		"ff-" + ids + "-01":                  "",
		"0x-" + ids + "-01":                  "",
		" 00-" + ids + "-01":                 "",
		"00-" + strings.ToUpper(ids) + "-01": "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":    "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":    "",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01":    "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\xff-01": "",
	} {
		got := trace.Parse([]string{text})
		if got.Header() != want {
			t.Errorf("%q is read as %q, want %q", text, got.Header(), want)
		}
		if got.Sampled() != (strings.HasSuffix(want, "1") || strings.HasSuffix(want, "3")) {
			t.Errorf("%q: sampled is %t", text, got.Sampled())
		}
	}
	if trace.Parse(nil) != nil || trace.Parse([]string{caller, caller}) != nil {
		t.Error("no header, or two of them, are read as a context")
	}
	if damaged := trace.Context("short"); damaged.Header() != "" || damaged.Sampled() {
		t.Error("a context of another length is used")
	}
}

func drafts(n int) []store.Draft {
	list := make([]store.Draft, n)
	for i := range list {
		list[i].Callback = store.Callback{ID: fmt.Sprint("id-", i), Project: "p", Kind: store.Notify}
	}
	return list
}

func acceptedOf(drafts []store.Draft) []store.Accepted {
	list := make([]store.Accepted, len(drafts))
	for i := range list {
		list[i].Callback = drafts[i].Callback
	}
	return list
}

func stamped(d store.Draft, attempts int) *store.Stamped {
	s := &store.Stamped{Callback: d.Callback}
	s.AttemptSeq, s.Trigger = attempts, store.BySchedule
	return s
}

// accept makes the request of one accept, and returns the trace context of its callback.
func (w *world) accept(t *testing.T, tracer *trace.Tracer, traceparent ...string) (store.Draft, bool) {
	t.Helper()
	ctx, span := tracer.Request(t.Context(), traceparent, "POST", "/v1/callbacks")
	list := drafts(1)
	creation := tracer.Create(ctx, list)
	creation.End(acceptedOf(list))
	span.EndRequest(http.StatusAccepted)
	return list[0], span != nil
}

func TestTheCallerDecidesWhatIsRecorded(t *testing.T) {
	for _, ratio := range []float64{0, 1} {
		w := newWorld(t, ratio)
		for _, c := range []struct {
			what, traceparent string
			recorded, without bool
			// kept is what the callback has if nothing is recorded.
			kept string
		}{
			{what: "a recorded caller", traceparent: caller, recorded: true, kept: caller},
			{
				what: "a caller that is not recorded", traceparent: strings.TrimSuffix(caller, "1") + "0",
				kept: strings.TrimSuffix(caller, "1") + "0",
			},
			{what: "an invalid header", traceparent: "x", recorded: ratio == 1},
			{what: "no caller", recorded: ratio == 1},
		} {
			var headers []string
			if c.traceparent != "" {
				headers = []string{c.traceparent}
			}
			draft, recorded := w.accept(t, w.Tracer, headers...)
			got := trace.Context(draft.Callback.TraceContext)
			if recorded != c.recorded || got.Sampled() != c.recorded {
				t.Errorf("ratio %g, %s: recorded is %t, the flag %t", ratio, c.what, recorded, got.Sampled())
			}
			if !c.recorded && got.Header() != c.kept {
				t.Errorf("ratio %g, %s: the callback has %q, want %q", ratio, c.what, got.Header(), c.kept)
			}
			attempt := w.Attempt(stamped(draft, 0), time.Now(), nil, false)
			if (attempt != nil) != c.recorded {
				t.Errorf("ratio %g, %s: the attempt is recorded: %t", ratio, c.what, attempt != nil)
			}
			// Without a collector a caller's context is kept, and nothing is recorded.
			draft, recorded = w.accept(t, nil, headers...)
			if got := trace.Context(draft.Callback.TraceContext).Header(); got != c.kept || recorded {
				t.Errorf("%s, without a collector: %q, recorded %t", c.what, got, recorded)
			}
			if (*trace.Tracer)(nil).Attempt(stamped(draft, 0), time.Now(), nil, false) != nil {
				t.Errorf("%s, without a collector: the attempt is recorded", c.what)
			}
		}
	}
}

// attempt makes the spans of one attempt and returns the header that the receiver gets.
func (w *world) attempt(cb *store.Stamped, class store.Class) string {
	at := time.Now()
	steps := w.NewSteps()
	steps.Locked()
	steps.Stamped()
	s := w.Attempt(cb, at, steps, true)
	request := s.Send("POST", "https://user:pass@shop.example:8443/notify?token=hunter2")
	a := &store.Attempt{Outcome: store.AttemptSucceeded, Charged: true, Class: class, Status: 200}
	if class != store.ClassOK {
		a.Outcome, a.Status, a.Error = store.AttemptFailed, 0, "timeout"
	}
	request.EndSend(trace.Response{
		Status: a.Status, Class: class, Error: a.Error, StartedAt: at, EndedAt: time.Now(),
		Timings: store.Timings{DNS: 1, Connect: 2, TLS: 3, FirstByte: 8, Total: 9},
	})
	s.BeginSettle(&store.Result{Attempt: a})
	s.Committed(&store.Committed{Won: true, State: store.Succeeded})
	s.EndSettle()
	return request.Context().Header()
}

func TestAttemptsAreRootsWithLinks(t *testing.T) {
	w := newWorld(t, 0)
	draft, _ := w.accept(t, w.Tracer, caller)
	sent := []string{
		w.attempt(stamped(draft, 0), store.ClassTimeoutHeaders), w.attempt(stamped(draft, 1), store.ClassOK),
	}
	w.Close(time.Minute)
	server := w.collector.Named("POST /v1/callbacks")
	attempts, requests := w.collector.Named("attempt"), w.collector.Named("POST")
	settles := w.collector.Named("settle")
	if len(server) != 1 || len(attempts) != 2 || len(requests) != 2 || len(settles) != 2 {
		t.Fatalf("%d, %d, %d and %d spans", len(server), len(attempts), len(requests), len(settles))
	}
	if s := server[0]; s.Kind != "SERVER" || s.TraceID != caller[3:35] || s.ParentID != caller[36:52] ||
		s.Attributes["dispatcher.callback.id"] != "cb_id-0" ||
		s.Attributes["http.response.status_code"] != "202" ||
		s.Resource["service.name"] != "dispatcher" || s.Resource["service.version"] != "1.2.3" {
		t.Errorf("the accept is %+v", s)
	}
	for i, a := range attempts {
		want := []testserver.Link{{TraceID: server[0].TraceID, SpanID: server[0].SpanID, What: "created"}}
		if i > 0 {
			want = append(want, testserver.Link{
				TraceID: attempts[0].TraceID, SpanID: attempts[0].SpanID, What: "previous attempt",
			})
		}
		if fmt.Sprint(a.Links) != fmt.Sprint(want) {
			t.Errorf("attempt %d links to %v, want %v", i+1, a.Links, want)
		}
		if a.Kind != "CONSUMER" || a.ParentID != "" || a.TraceID == server[0].TraceID ||
			fmt.Sprint(a.Events) != "[claimed locked stamped]" || a.Failed != (i == 0) ||
			a.Attributes["dispatcher.attempt.number"] != fmt.Sprint(i+1) {
			t.Errorf("attempt %d is %+v", i+1, a)
		}
		r := requests[i]
		if r.Kind != "CLIENT" || r.ParentID != a.SpanID || r.Failed != (i == 0) ||
			sent[i] != "00-"+r.TraceID+"-"+r.SpanID+"-01" || r.TraceID != a.TraceID ||
			fmt.Sprint(r.Events) != "[dns connect tls first byte]" ||
			r.Attributes["url.full"] != "https://shop.example:8443/notify?token=***" {
			t.Errorf("request %d is %+v, the header %s", i+1, r, sent[i])
		}
		if s := settles[i]; s.Kind != "INTERNAL" || s.ParentID != a.SpanID ||
			fmt.Sprint(s.Events) != "[committed]" {
			t.Errorf("settle %d is %+v", i+1, s)
		}
	}
	for _, s := range w.collector.Spans() {
		if strings.Contains(s.Text, "hunter2") || strings.Contains(s.Text, "pass@") {
			t.Errorf("a span contains a secret: %s", s.Text)
		}
	}
}

// An attempt that is put back without a row in SQL is not settled, and leaves its ids to the next one.
func TestAnAttemptThatIsNotSettledHasNoSpan(t *testing.T) {
	w := newWorld(t, 0)
	draft, _ := w.accept(t, w.Tracer, caller)
	cb := stamped(draft, 0)
	request := w.Attempt(cb, time.Now(), nil, false).Send("POST", "https://shop.example/")
	request.EndSend(trace.Response{Class: store.ClassLocalInfra, EndedAt: time.Now()})
	w.attempt(cb, store.ClassOK)
	w.Close(time.Minute)
	attempts, requests := w.collector.Named("attempt"), w.collector.Named("POST")
	if len(attempts) != 1 || len(requests) != 1 || requests[0].ParentID != attempts[0].SpanID ||
		requests[0].Failed {
		t.Errorf("the attempts are %+v, their requests %+v", attempts, requests)
	}
}

// An attempt that panicked has no span of its request: nothing says when it ended.
func TestPanickedAttemptHasNoSpanOfItsRequest(t *testing.T) {
	w := newWorld(t, 0)
	draft, _ := w.accept(t, w.Tracer, caller)
	s := w.Attempt(stamped(draft, 0), time.Now(), nil, false)
	s.Send("POST", "https://shop.example/")
	s.BeginSettle(&store.Result{Attempt: &store.Attempt{Class: store.ClassPanic}})
	s.EndSettle()
	w.Close(time.Minute)
	if attempts := w.collector.Named("attempt"); len(attempts) != 1 || !attempts[0].Failed {
		t.Errorf("the attempts are %+v", attempts)
	}
	if requests := w.collector.Named("POST"); len(requests) != 0 {
		t.Errorf("the requests are %+v", requests)
	}
}

func TestBatchesHaveABoundedNumberOfSpans(t *testing.T) {
	w := newWorld(t, 0)
	list := drafts(250)
	ctx, span := w.Request(t.Context(), []string{caller}, "POST", "/v1/callbacks/batch")
	creation := w.Create(ctx, list)
	accepted := acceptedOf(list)
	accepted[1].Err, accepted[2].Replayed = context.Canceled, true
	creation.End(accepted)
	span.EndRequest(http.StatusMultiStatus)
	w.Close(time.Minute)
	created := map[string]bool{}
	for _, s := range w.collector.Named("create") {
		created["00-"+s.TraceID+"-"+s.SpanID+"-01"] = true
		if s.Kind != "PRODUCER" || s.TraceID != caller[3:35] {
			t.Errorf("a creation is %+v", s)
		}
	}
	if len(created) != 98 {
		t.Errorf("%d spans of created callbacks, want 98 (100 less a refused and a replayed one)",
			len(created))
	}
	for i := range list {
		header := trace.Context(list[i].Callback.TraceContext).Header()
		switch {
		case i >= 100 && header != span.Context().Header():
			t.Errorf("callback %d has the context %s, not that of the request", i, header)
		case i < 100 && i != 1 && i != 2 && !created[header]:
			t.Errorf("callback %d has a context without a span", i)
		}
	}
}

func TestCallbacksWithoutARequestAreChosenByTheRatio(t *testing.T) {
	for _, ratio := range []float64{0, 1} {
		w := newWorld(t, ratio)
		list := drafts(2)
		w.Create(t.Context(), list).End(acceptedOf(list))
		w.Close(time.Minute)
		created := w.collector.Named("create")
		if len(created) != int(2*ratio) || (list[0].Callback.TraceContext != nil) != (ratio == 1) {
			t.Errorf("ratio %g: %d spans", ratio, len(created))
		}
		if ratio == 1 && (created[0].TraceID == created[1].TraceID || created[0].ParentID != "") {
			t.Errorf("two callbacks share a trace: %+v", created)
		}
	}
}

// A collector that hangs or refuses costs spans. It delays neither a span nor the end of the process, and it
// is counted and logged without secrets.
func TestACollectorThatFails(t *testing.T) {
	for what, answer := range map[string]http.HandlerFunc{
		"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"401": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "unknown key "+r.Header.Get("X-Key"), http.StatusUnauthorized)
		},
		"hang": nil,
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 1, "X-Key=abc%2Cdef")
			w.collector.Answer(answer)
			if answer == nil {
				w.collector.Hang()
			}
			for range 3000 { // more than the queue
				w.accept(t, w.Tracer)
			}
			testserver.Until(t, "an export begins", func() bool { return len(w.collector.Headers()) > 0 })
			if got := w.collector.Headers()[0].Get("X-Key"); got != "abc,def" {
				t.Errorf("the collector got the key %q", got)
			}
			w.Close(50 * time.Millisecond)
			testserver.Until(t, "all goroutines of the exporter end", func() bool {
				var stacks bytes.Buffer
				if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
					t.Fatal(err)
				}
				return !strings.Contains(stacks.String(), "go.opentelemetry.io")
			})
			if n := testutil.ToFloat64(failures(t, w.metrics)); n < 1 {
				t.Errorf("%g failures are counted", n)
			}
			if log := w.log.String(); !strings.Contains(log, "traces cannot be exported") ||
				strings.Contains(log, "abc,def") || strings.Count(log, "\n") != 1 {
				t.Errorf("the log is %q", log)
			}
		})
	}
}

// failures reads the counter of failed exports.
func failures(t *testing.T, r *prometheus.Registry) prometheus.Collector {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := prometheus.NewGauge(prometheus.GaugeOpts{Name: "total"})
	for _, f := range families {
		if f.GetName() == "dispatcher_trace_export_failures_total" {
			total.Set(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return total
}

func TestWithoutACollectorNothingIsAllocated(t *testing.T) {
	metrics := process.Metrics{Registerer: prometheus.NewRegistry()}
	tracer, err := trace.New(t.Context(), trace.Options{Metrics: metrics})
	if err != nil || tracer != nil {
		t.Fatalf("a tracer without a collector: %v, %v", tracer, err)
	}
	list, cb := drafts(1), stamped(drafts(1)[0], 1)
	if n := testing.AllocsPerRun(100, func() {
		ctx, span := tracer.Request(t.Context(), nil, "POST", "/v1/callbacks")
		tracer.Create(ctx, list).End(nil)
		span.EndRequest(202)
		steps := tracer.NewSteps()
		steps.Locked()
		steps.Stamped()
		s := tracer.Attempt(cb, time.Time{}, steps, false)
		s.BeginSettle(nil)
		s.EndSettle()
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
	tracer.Close(time.Minute)
}

// With a collector, a callback that is not recorded costs one value in the context of its accept.
func TestAnUnrecordedCallbackAllocatesNoSpan(t *testing.T) {
	w := newWorld(t, 0)
	list, cb := drafts(1), stamped(drafts(1)[0], 1)
	if n := testing.AllocsPerRun(100, func() {
		ctx, span := w.Request(t.Context(), nil, "POST", "/v1/callbacks")
		w.Create(ctx, list).End(nil)
		span.EndRequest(202)
		s := w.Attempt(cb, time.Time{}, nil, false)
		s.BeginSettle(nil)
		s.EndSettle()
	}); n > 1 {
		t.Errorf("%g allocations", n)
	}
}

func TestChecks(t *testing.T) {
	for endpoint, fine := range map[string]bool{
		"http://127.0.0.1:4318": true, "https://collector.example/otlp/": true,
		"http://127.0.0.1:4318/v1/traces": true,
		"":                                false, "127.0.0.1:4318": false, "grpc://collector:4317": false, "http://": false,
		"http://user:pass@collector": false, "http://collector?key=1": false, "http://[": false,
	} {
		if err := trace.CheckEndpoint(endpoint); (err == nil) != fine {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
	for header, fine := range map[string]bool{
		"Authorization=Bearer abc": true, "x-key=a%2Cb": true, "x = y": true,
		"Authorization=Basic YTpi==": true,
		"":                           false, "x": false, "=y": false, "x=": false,
		"x=%zz": false, "x=a%0Ab": false, "a b=c": false,
		"x=ü": false,
	} {
		err := trace.CheckHeader(header)
		if (err == nil) != fine {
			t.Errorf("header %q: %v", header, err)
		}
		if _, value, _ := strings.Cut(header, "="); err != nil && len(value) > 1 &&
			strings.Contains(err.Error(), value) {
			t.Errorf("header %q: the error shows its value: %v", header, err)
		}
	}
}
