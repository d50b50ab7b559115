package web

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// unmatched is the route of requests without a route. Metrics must not have their paths as labels, because a
// stranger can send any path.
const unmatched = "unmatched"

// middleware runs around every public request.
type middleware struct {
	log      *slog.Logger
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	// idPrefix makes the request ids of this process different from those of other processes.
	idPrefix string
	ids      atomic.Uint64
	refused  refusals
}

// newMiddleware registers the metrics of public requests and chooses the prefix of the request ids.
func newMiddleware(log *slog.Logger, reg prometheus.Registerer) (*middleware, error) {
	m := &middleware{
		log: log,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metric.Prefix + "http_requests_total",
			Help: "Public HTTP requests by route and status code.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metric.Prefix + "http_request_duration_seconds",
			Help:    "Time from the end of a request's header to the end of its response, by route.",
			Buckets: metric.Durations(),
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("create the prefix of request ids: %w", err)
	}
	m.idPrefix = hex.EncodeToString(random[:]) + "-"
	return m, nil
}

// createSeries creates the counters that alerts watch: those of the status codes 500 and 503 of every route.
// The others appear with the first response of their route. The histograms of all routes would be nine tenths
// of all series of a process (measured: 4,600 of 5,500), and no alert needs them before a request.
func (m *middleware) createSeries(routes gin.RoutesInfo) {
	names := []string{unmatched}
	for _, r := range routes {
		names = append(names, r.Method+" "+r.Path)
	}
	for _, route := range names {
		for _, code := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
			m.requests.WithLabelValues(route, strconv.Itoa(code))
		}
	}
}

// requestID returns an id for one request. It ignores an id from the client, which would let a stranger write
// into the log.
func (m *middleware) requestID() string {
	return m.idPrefix + strconv.FormatUint(m.ids.Add(1), 36)
}

// observe gives a request an id, counts it, and logs it.
func (m *middleware) observe(c *gin.Context) {
	began := time.Now()
	id := m.requestID()
	c.Writer.Header()[api.RequestIDHeader] = []string{id}
	c.Next()
	took := time.Since(began)
	route := routeOf(c)
	status := c.Writer.Status()
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
	level := levelOf(c, status)
	if !m.log.Enabled(c.Request.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", id), slog.String("method", c.Request.Method), slog.String("route", route),
		slog.String("path", shortPath(c.Request.URL.Path)), slog.Int("status", status),
		slog.Int("bytes", max(c.Writer.Size(), 0)),
		slog.Duration("took", took), slog.String("remote", c.ClientIP()),
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		ok, left := m.refused.line(began.Add(took))
		if !ok {
			return
		}
		attrs = append(attrs, slog.Int("suppressed_lines", left))
	}
	attrs = append(attrs, trace.FromContext(c.Request.Context()).LogAttrs()...)
	m.log.LogAttrs(c.Request.Context(), level, "request", attrs...)
}

// routeOf returns the method and the pattern of the request's route.
func routeOf(c *gin.Context) string {
	path := c.FullPath()
	if path == "" {
		return unmatched
	}
	return c.Request.Method + " " + path
}

// levelOf returns the log level of a request. Successful accepts get the debug level: they are the most
// frequent requests, and each has a row in SQL.
func levelOf(c *gin.Context, status int) slog.Level {
	isAccept := false
	switch c.FullPath() {
	case "/v1/callbacks", "/v1/callbacks/batch", "/v1/events":
		isAccept = c.Request.Method == http.MethodPost
	}
	switch {
	case status >= http.StatusInternalServerError:
		return slog.LevelWarn
	case isAccept && status < http.StatusMultipleChoices:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// shortPath cuts a path for the log. It hides the token of a merchant's link, which is a credential.
func shortPath(path string) string {
	if rest, ok := strings.CutPrefix(path, query.ViewRoot+"/"); ok {
		_, page, _ := strings.Cut(rest, "/")
		path = strings.TrimSuffix(query.ViewRoot+"/***/"+page, "/")
	}
	if len(path) > 128 {
		return path[:128] + "…"
	}
	return path
}

// recover turns a panic into a 500. It logs the panic and its stack. Of the request it logs only the route,
// because headers contain keys.
func (m *middleware) recover(c *gin.Context) {
	defer func() {
		thrown := recover()
		if thrown == nil {
			return
		}
		if err, ok := thrown.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(thrown) // net/http's way to drop a connection, not an error
		}
		id := c.Writer.Header().Get(api.RequestIDHeader)
		log := trace.FromContext(c.Request.Context()).Logger(m.log)
		log.Error("handler panicked", "request_id", id, "route", routeOf(c), "panic", fmt.Sprint(thrown),
			"stack", string(debug.Stack()))
		c.Abort()
		if c.Writer.Written() {
			return
		}
		m.write(c, httperr.Logged(id))
	}()
	c.Next()
}

// refuse responds with the problem of an error.
func (m *middleware) refuse(c *gin.Context, err error) { m.write(c, httperr.From(err)) }

func (m *middleware) write(c *gin.Context, p httperr.Problem) {
	if err := httperr.Write(c.Writer, p); err != nil {
		id := c.Writer.Header().Get(api.RequestIDHeader)
		m.log.Debug("response not written", "request_id", id, "error", err)
	}
}

// secure sets the headers that keep a browser from treating a response as HTML or framing it, and keep caches
// from storing it. All responses share the slices, so a handler may replace them but must not write to them.
func secure(c *gin.Context) {
	h := c.Writer.Header()
	h["X-Content-Type-Options"] = nosniff
	h["Content-Security-Policy"] = noContent
	h["Referrer-Policy"] = noReferrer
	h["Cache-Control"] = noStore
	c.Next()
}

// httpsOnly makes browsers use https for two years (HSTS). It leaves out subdomains, because they may belong
// to other services.
func httpsOnly(c *gin.Context) {
	c.Writer.Header()["Strict-Transport-Security"] = twoYears
	c.Next()
}

var (
	twoYears   = []string{"max-age=63072000"}
	nosniff    = []string{"nosniff"}
	noContent  = []string{"default-src 'none'; frame-ancestors 'none'"}
	noReferrer = []string{"no-referrer"}
	noStore    = []string{"no-store"}
)

// refusalLines is the maximum number of log lines per second for responses with 503 or 429. Callers repeat
// such requests again and again, and their lines would fill the disk. The cause is logged elsewhere, and the
// metrics count every request.
const refusalLines = 5

// refusals limits the log lines of refused requests.
type refusals struct {
	mu     sync.Mutex
	second int64
	lines  int
	// left is the number of refusals without a line since the last line.
	left int
}

// line reports whether a refusal gets a line, and how many refusals before it got none.
func (r *refusals) line(now time.Time) (ok bool, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Parallel requests may call line in another order than they ended, so the second must not go back.
	if second := now.Unix(); second > r.second {
		r.second, r.lines = second, 0
	}
	if r.lines >= refusalLines {
		r.left++
		return false, 0
	}
	r.lines++
	left, r.left = r.left, 0
	return true, left
}
