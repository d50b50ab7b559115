package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

const (
	// requestTimeout bounds one request to the collector. A request that the collector refuses for now is
	// repeated within retryTime. exportTimeout bounds an export with its repetitions.
	requestTimeout = 5 * time.Second
	retryTime      = 10 * time.Second
	exportTimeout  = 15 * time.Second
	// tracesPath is where a collector receives spans.
	tracesPath = "/v1/traces"
	// maxErrorText is the most bytes of a collector's error in the log.
	maxErrorText = 300
)

// CheckEndpoint returns an error if a text is not the URL of a collector, such as http://127.0.0.1:4318.
// Spans are sent to the path /v1/traces below it.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("is not a URL such as http://127.0.0.1:4318")
	case u.User != nil:
		return errors.New("has credentials; set them with otlp_headers")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("must have no query and no fragment")
	}
	return nil
}

// tracesURL returns where spans are sent to.
func tracesURL(endpoint string) string {
	return strings.TrimSuffix(strings.TrimRight(endpoint, "/"), tracesPath) + tracesPath
}

// CheckHeader returns an error if a text is not the header of a request to the collector: name=value, with
// the value percent-encoded where it has commas or percent signs. The error does not contain the value.
func CheckHeader(header string) error {
	_, _, err := parseHeader(header)
	return err
}

func parseHeader(header string) (name, value string, err error) {
	name, value, found := strings.Cut(header, "=")
	name = strings.TrimSpace(name)
	if !found || name == "" || strings.ContainsFunc(name, isNoNameByte) {
		return "", "", errors.New("is not of the form name=value")
	}
	value, err = url.PathUnescape(strings.TrimSpace(value))
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	if err != nil || value == "" || strings.ContainsFunc(value, unprintable) {
		return "", "", fmt.Errorf("the value of %s is empty or not percent-encoded ASCII", name)
	}
	return name, value, nil
}

// isNoNameByte reports whether a character may not be in the name of a header.
func isNoNameByte(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// An exporter sends spans to the collector. It counts and logs failures itself and reports none to the SDK,
// which would log each of them.
type exporter struct {
	next     sdk.SpanExporter
	idle     func()
	secrets  []string
	failures interface{ Inc() }
	log      *slog.Logger
	// stopped ends when the time for the last export is over.
	stopped context.Context
	stop    context.CancelFunc

	mu     sync.Mutex
	failed process.LogLimiter
}

func newExporter(ctx context.Context, o *Options, failures interface{ Inc() }) (*exporter, error) {
	if err := CheckEndpoint(o.Endpoint); err != nil {
		return nil, fmt.Errorf("%s %w", o.Endpoint, err)
	}
	headers := make(map[string]string, len(o.Headers))
	secrets := make([]string, 0, len(o.Headers))
	for _, text := range o.Headers {
		name, value, err := parseHeader(text)
		if err != nil {
			return nil, err
		}
		headers[name] = value
		secrets = append(secrets, value)
	}
	// The collector is the operator's, usually at a private address, so neither the egress guard nor a proxy
	// of the environment applies.
	transport := &http.Transport{
		MaxConnsPerHost: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: requestTimeout,
	}
	next, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(tracesURL(o.Endpoint)),
		otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport: transport, Timeout: requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: retryTime / 2,
			MaxElapsedTime: retryTime,
		}))
	if err != nil {
		return nil, err
	}
	e := &exporter{
		next: next, idle: transport.CloseIdleConnections, secrets: secrets, failures: failures, log: o.Logger,
	}
	e.stopped, e.stop = context.WithCancel(context.Background())
	return e, nil
}

// ExportSpans sends spans to the collector. It returns nil: a failure is counted and logged.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.stopped, cancel)()
	err := e.next.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil:
		e.failures.Inc()
		if e.failed.Due(time.Now()) {
			e.log.Warn("traces cannot be exported, their spans are lost", "error", e.printable(err), "spans",
				len(spans))
		}
	case e.failed.Over():
		e.log.Info("traces are exported again")
	}
	return nil
}

// printable returns the text of an error without secrets. It may quote a response of the collector.
func (e *exporter) printable(err error) string {
	text := err.Error()
	for _, secret := range e.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return strings.ToValidUTF8(text, "")
}

// Shutdown closes the connections to the collector.
func (e *exporter) Shutdown(ctx context.Context) error {
	err := e.next.Shutdown(ctx)
	e.idle()
	return err
}
