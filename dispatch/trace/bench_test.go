package trace_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// benchTracer is a tracer whose collector reads the spans and drops them.
func benchTracer(b *testing.B, ratio float64) *trace.Tracer {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	b.Cleanup(collector.Close)
	tracer, err := trace.New(b.Context(), trace.Options{
		Endpoint: collector.URL, Ratio: ratio, Metrics: process.Metrics{Registerer: prometheus.NewRegistry()},
	})
	if err != nil {
		b.Fatal(err)
	}
	return tracer
}

func BenchmarkAccept(b *testing.B) {
	for name, ratio := range map[string]float64{"unrecorded": 0, "recorded": 1} {
		b.Run(name, func(b *testing.B) {
			tracer := benchTracer(b, ratio)
			list := drafts(1)
			accepted := acceptedOf(list)
			b.ReportAllocs()
			for b.Loop() {
				ctx, span := tracer.Request(b.Context(), nil, "POST", "/v1/callbacks")
				tracer.Create(ctx, list).End(accepted)
				span.EndRequest(202)
			}
			tracer.Close(time.Minute)
		})
	}
}

// BenchmarkAttempt makes the spans of one attempt, without their export: the queue is full most of the time.
func BenchmarkAttempt(b *testing.B) {
	tracer := benchTracer(b, 1)
	list := drafts(1)
	tracer.Create(b.Context(), list)
	cb := stamped(list[0], 1)
	cb.ID = "01JZ0000000000000000000000"
	at := time.Now()
	a := &store.Attempt{Outcome: store.AttemptSucceeded, Charged: true, Class: store.ClassOK, Status: 200}
	steps := tracer.NewSteps()
	steps.Stamped()
	r := trace.Response{Status: 200, Class: store.ClassOK, StartedAt: at, EndedAt: at,
		Timings: store.Timings{FirstByte: 8, Total: 9}}
	b.ReportAllocs()
	for b.Loop() {
		s := tracer.Attempt(cb, at, steps, false)
		s.Send("POST", "https://shop.example/notify").EndSend(r)
		s.BeginSettle(&store.Result{Attempt: a})
		s.Committed(&store.Committed{Won: true, State: store.Succeeded})
		s.EndSettle()
	}
	tracer.Close(time.Minute)
}
