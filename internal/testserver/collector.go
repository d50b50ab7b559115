package testserver

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Collector receives spans by OTLP over HTTP.
type Collector struct {
	URL string

	mu      sync.Mutex
	spans   []Span
	headers []http.Header
	refuse  http.HandlerFunc
	// ended is closed when the test ends.
	ended chan struct{}
}

// A Span is a span as the collector received it. Ids are hexadecimal, and empty for none.
type Span struct {
	Name, Kind, TraceID, SpanID, ParentID string
	// Resource and Attributes are the attributes as texts. Events are the names of the events in their order.
	Resource, Attributes map[string]string
	Events               []string
	// Links are traceparent headers, each with the attributes of the link.
	Links  []Link
	Failed bool
	// Start and End are Unix times in nanoseconds.
	Start, End uint64
	// Text is the whole span, to be searched for what it must not contain.
	Text string
}

// A Link is a link of a span.
type Link struct{ TraceID, SpanID, What string }

// NewCollector starts a collector that ends with the test.
func NewCollector(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{ended: make(chan struct{})}
	server := httptest.NewServer(c)
	tb.Cleanup(func() {
		close(c.ended)
		server.Close()
	})
	c.URL = server.URL
	return c
}

// Answer replaces the answer to exports. Nil: the collector accepts them again.
func (c *Collector) Answer(refuse http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

// Hang makes the collector answer no export until the test ends.
func (c *Collector) Hang() {
	c.Answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-c.ended:
		}
	})
}

// Spans returns the spans that were received.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Named returns the received spans of a name, in the order of their starts.
func (c *Collector) Named(name string) []Span {
	named := slices.DeleteFunc(c.Spans(), func(s Span) bool { return s.Name != name })
	slices.SortStableFunc(named, func(a, b Span) int {
		return int(int64(a.Start) - int64(b.Start))
	})
	return named
}

// Headers returns the headers of all exports.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.headers)
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	refuse := c.refuse
	c.headers = append(c.headers, r.Header.Clone())
	c.mu.Unlock()
	if refuse != nil {
		refuse(w, r)
		return
	}
	spans, err := readSpans(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
}

// readSpans reads the body of an export.
func readSpans(r *http.Request) ([]Span, error) {
	if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return nil, fmt.Errorf("no export of traces: %s %s", r.URL.Path, r.Header.Get("Content-Type"))
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var export collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &export); err != nil {
		return nil, err
	}
	var spans []Span
	for _, of := range export.ResourceSpans {
		resource := attributes(of.Resource.GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				spans = append(spans, spanOf(s, resource))
			}
		}
	}
	return spans, nil
}

func spanOf(s *tracepb.Span, resource map[string]string) Span {
	out := Span{
		Name: s.Name, Kind: strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"),
		TraceID: hex.EncodeToString(s.TraceId), SpanID: hex.EncodeToString(s.SpanId),
		ParentID: hex.EncodeToString(s.ParentSpanId),
		Resource: resource, Attributes: attributes(s.Attributes),
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		Start:  s.StartTimeUnixNano, End: s.EndTimeUnixNano, Text: s.String(),
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, e.Name)
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, Link{
			TraceID: hex.EncodeToString(l.TraceId), SpanID: hex.EncodeToString(l.SpanId),
			What: attributes(l.Attributes)["dispatcher.link"],
		})
	}
	return out
}

// attributes returns attributes as texts.
func attributes(list []*commonpb.KeyValue) map[string]string {
	texts := make(map[string]string, len(list))
	for _, a := range list {
		switch v := a.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			texts[a.Key] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			texts[a.Key] = fmt.Sprint(v.BoolValue)
		case *commonpb.AnyValue_IntValue:
			texts[a.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			texts[a.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return texts
}
