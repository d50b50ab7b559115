package smoke

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// traceID is the trace of the caller in these tests, and callersSpan its span.
const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	callersSpan = "b7ad6b7169203331"
	recorded    = "00-" + traceID + "-" + callersSpan + "-01"
	unrecorded  = "00-" + traceID + "-" + callersSpan + "-00"
)

// submitTraced submits a callback as a caller with a trace and returns its id.
func submitTraced(t *testing.T, p *harness.Process, s harness.Submission, traceparent string) string {
	t.Helper()
	body, err := json.Marshal(s)
	harness.Check(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Base+"/v1/callbacks",
		bytes.NewReader(body))
	harness.Check(t, err)
	req.Header.Set("Authorization", "Bearer "+harness.AdminKey)
	if traceparent != "" {
		req.Header.Set("traceparent", traceparent)
		req.Header.Set("tracestate", "vendor=state")
		req.Header.Set("baggage", "user=alice")
	}
	resp, err := p.HTTP.Do(req)
	harness.Check(t, err)
	defer resp.Body.Close()
	var cb client.Callback
	harness.Check(t, json.NewDecoder(resp.Body).Decode(&cb))
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return cb.ID
}

// The trace of one callback that one process accepts, a second one attempts, and a third one retries.
func TestTracesOfACallbackOverSeveralProcesses(t *testing.T) {
	on := harness.NewBackend(t, harness.PostgresRedis)
	collector := testserver.NewCollector(t)
	receiver := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
		if a.Kind() == "retry" && a.Nth == 1 {
			return harness.Reply{Status: http.StatusInternalServerError}
		}
		return harness.Reply{}
	})
	serve := func(args ...string) *harness.Process {
		return harness.Serve(t, harness.Launch{On: on, Times: harness.QuickTimes, Args: append(args,
			"--otlp-endpoint", collector.URL, "--trace-sample-ratio", "0")})
	}
	api := serve("--roles", "api", "--log-level", "debug")
	first := serve("--roles", "worker")
	submission := func(path string) harness.Submission {
		return harness.Submission{
			"url": receiver.URL + path, "payload": 1, "policy": harness.Tiers("5s", "1s"), "signer": "none",
			"ref": "order-hidden", "labels": map[string]string{"a": "hidden"},
			"headers": map[string]string{"X-Token": "hidden"},
		}
	}
	id := submitTraced(t, api, submission("/retry?token=hidden"), recorded)
	harness.AtLeast(t, 30*time.Second, "the first attempt", 1, func() int { return receiver.Times(id) })
	first.Exit(30 * time.Second)
	serve("--roles", "worker")
	harness.AtLeast(t, 30*time.Second, "the retry", 2, func() int { return receiver.Times(id) })

	var attempts, requests, settles []testserver.Span
	harness.Eventually(t, 30*time.Second, "all spans are exported", func() error {
		attempts, requests = collector.Named("attempt"), collector.Named("POST")
		settles = collector.Named("settle")
		if n := len(collector.Spans()); n != 7 || len(attempts) != 2 || len(requests) != 2 ||
			len(settles) != 2 {
			return fmt.Errorf("%d spans, %d attempts", n, len(attempts))
		}
		return nil
	})
	accept := collector.Named("POST /v1/callbacks")[0]
	if accept.Kind != "SERVER" || accept.TraceID != traceID || accept.ParentID != callersSpan ||
		accept.Attributes["dispatcher.callback.id"] != id ||
		accept.Attributes["http.response.status_code"] != "202" {
		t.Errorf("the accept is %+v", accept)
	}
	created := testserver.Link{TraceID: accept.TraceID, SpanID: accept.SpanID, What: "created"}
	before := testserver.Link{
		TraceID: attempts[0].TraceID, SpanID: attempts[0].SpanID, What: "previous attempt",
	}
	processes := map[string]bool{accept.Resource["service.instance.id"]: true}
	for i, a := range attempts {
		processes[a.Resource["service.instance.id"]] = true
		links, class := []testserver.Link{created}, "http_5xx"
		if i == 1 {
			links, class = append(links, before), "ok"
		}
		if a.Kind != "CONSUMER" || a.ParentID != "" || a.TraceID == traceID ||
			!slices.Equal(a.Links, links) || a.Attributes["dispatcher.callback.id"] != id ||
			a.Attributes["dispatcher.attempt.class"] != class ||
			!slices.Equal(a.Events, []string{"claimed", "stamped"}) || a.Failed != (i == 0) {
			t.Errorf("attempt %d is %+v, want the links %v", i+1, a, links)
		}
		r, arrival := requests[i], receiver.Of(id)[i]
		if r.Kind != "CLIENT" || r.ParentID != a.SpanID ||
			arrival.Header.Get("traceparent") != "00-"+r.TraceID+"-"+r.SpanID+"-01" ||
			r.Attributes["url.full"] != receiver.URL+"/retry?token=***" {
			t.Errorf("request %d is %+v, its headers %v", i+1, r, arrival.Header)
		}
		if s := settles[i]; s.ParentID != a.SpanID || s.TraceID != a.TraceID || s.End < s.Start {
			t.Errorf("settle %d is %+v", i+1, s)
		}
	}
	if len(processes) != 3 {
		t.Errorf("the spans are of %d processes, want 3", len(processes))
	}
	log, err := os.ReadFile(api.LogFile)
	harness.Check(t, err)
	want := `"trace_id":"` + traceID + `","span_id":"` + accept.SpanID + `"`
	if !strings.Contains(string(log), want) {
		t.Errorf("the log has no line with %s", want)
	}

	// A caller whose trace is not recorded is continued unchanged. Without a caller the flag is 00.
	for traceparent, want := range map[string]string{unrecorded: unrecorded, "": "-00"} {
		id := submitTraced(t, api, submission("/plain"), traceparent)
		harness.AtLeast(t, 30*time.Second, "the attempt", 1, func() int { return receiver.Times(id) })
		got := receiver.Of(id)[0].Header.Get("traceparent")
		if !strings.HasSuffix(got, want) || len(got) != 55 {
			t.Errorf("caller %q: the receiver gets %q", traceparent, got)
		}
	}
	for _, a := range receiver.All() {
		if a.Header.Get("tracestate") != "" || a.Header.Get("baggage") != "" {
			t.Errorf("the receiver gets %v", a.Header)
		}
	}
	for _, s := range collector.Spans() {
		if strings.Contains(s.Text, "hidden") {
			t.Errorf("a span shows what it must not: %s", s.Text)
		}
	}
}

// Without a collector the caller's trace is continued all the same, in every attempt.
func TestACallersTraceIsContinuedWithoutACollector(t *testing.T) {
	receiver := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
		if a.Nth == 1 {
			return harness.Reply{Status: http.StatusInternalServerError}
		}
		return harness.Reply{}
	})
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	id := submitTraced(t, p, harness.Submission{
		"url": receiver.URL + "/notify", "payload": 1, "policy": harness.Tiers("5s", "0s"),
	}, recorded)
	harness.AtLeast(t, 30*time.Second, "two attempts", 2, func() int { return receiver.Times(id) })
	for _, a := range receiver.Of(id) {
		if got := a.Header.Get("traceparent"); got != recorded {
			t.Errorf("attempt %d has the traceparent %q, want %q", a.Number, got, recorded)
		}
	}
}

// A collector that hangs, refuses or is not there delays no callback, and no drain beyond its limit.
func TestCollectorsThatFail(t *testing.T) {
	const callbacks = 60
	for _, how := range []string{"hangs", "refuses", "is gone"} {
		t.Run(how, func(t *testing.T) {
			collector := testserver.NewCollector(t)
			endpoint := collector.URL
			switch how {
			case "hangs":
				collector.Hang()
			case "refuses":
				collector.Answer(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusServiceUnavailable)
				})
			default:
				endpoint = "http://127.0.0.1:" + testserver.FreePort(t)
			}
			receiver := harness.NewReceiver(t, harness.Always(harness.Reply{}))
			on := harness.NewBackend(t, harness.SQLiteEmbedded)
			on.SkipReconciliation("the test ends the only process")
			p := harness.Serve(t, harness.Launch{On: on, Args: []string{
				"--otlp-endpoint", endpoint, "--trace-sample-ratio", "1", "--drain-timeout", "5s",
			}})
			for range callbacks {
				submitTraced(t, p, harness.Submission{"url": receiver.URL + "/notify", "payload": 1}, "")
			}
			harness.AtLeast(t, 30*time.Second, "all callbacks arrive", callbacks, receiver.Count)
			if how == "is gone" {
				p.AwaitMetric(30*time.Second, "dispatcher_trace_export_failures_total", 1)
			} else {
				harness.AtLeast(t, 30*time.Second, "an export begins", 1,
					func() int { return len(collector.Headers()) })
			}
			p.Exit(30 * time.Second)
			log, err := os.ReadFile(p.LogFile)
			harness.Check(t, err)
			if n := strings.Count(string(log), "traces cannot be exported"); n != 1 {
				t.Errorf("%d lines of the log say that spans are lost, want 1", n)
			}
			for _, a := range receiver.All() {
				if !strings.HasSuffix(a.Header.Get("traceparent"), "-01") {
					t.Errorf("an attempt has the traceparent %q", a.Header.Get("traceparent"))
				}
			}
		})
	}
}
