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
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// unmatched is the route of requests that no route answers: paths are a stranger's to choose, labels are not.
const unmatched = "unmatched"

// middleware is what happens around every public request.
type middleware struct {
	log      *slog.Logger
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	// idPrefix tells this process's request ids from every other's.
	idPrefix string
	ids      atomic.Uint64
	refused  refusals
}

func newMiddleware(log *slog.Logger, reg prometheus.Registerer) (*middleware, error) {
	m := &middleware{
		log: log,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatcher_http_requests_total",
			Help: "Public HTTP requests by route and status code.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dispatcher_http_request_seconds",
			Help:    "Time from the request's header to the end of its answer, by route.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("make a prefix of request ids: %w", err)
	}
	m.idPrefix = hex.EncodeToString(random[:]) + "-"
	return m, nil
}

// requestID makes an id for one request. An id that the client sent is not taken over: it would let a
// stranger write into the log.
func (m *middleware) requestID() string {
	return m.idPrefix + strconv.FormatUint(m.ids.Add(1), 36)
}

// observe gives the request an id, counts it, and writes its line.
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
		attrs = append(attrs, slog.Int("refused_without_a_line", left))
	}
	m.log.LogAttrs(c.Request.Context(), level, "request", attrs...)
}

// routeOf returns the route's method and pattern.
func routeOf(c *gin.Context) string {
	path := c.FullPath()
	if path == "" {
		return unmatched
	}
	return c.Request.Method + " " + path
}

// levelOf keeps accepts that went well out of the usual log: they are the bulk, and each is a row in SQL.
func levelOf(c *gin.Context, status int) slog.Level {
	switch {
	case status >= http.StatusInternalServerError:
		return slog.LevelWarn
	case status < http.StatusMultipleChoices && c.Request.Method == http.MethodPost &&
		(c.FullPath() == "/v1/callbacks" || c.FullPath() == "/v1/callbacks/batch" ||
			c.FullPath() == "/v1/events"):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// shortPath is a path as a log line may carry it.
func shortPath(path string) string {
	if len(path) > 128 {
		return path[:128] + "…"
	}
	return path
}

// recover turns a panic into a 500. The log gets what was thrown and where, and nothing of the request but
// its route: headers carry keys.
func (m *middleware) recover(c *gin.Context) {
	defer func() {
		thrown := recover()
		if thrown == nil {
			return
		}
		if err, ok := thrown.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(thrown) // net/http's own way to drop a connection, not a mistake.
		}
		id := c.Writer.Header().Get(api.RequestIDHeader)
		m.log.Error("a handler panicked", "request_id", id, "route", routeOf(c), "panic", fmt.Sprint(thrown),
			"stack", string(debug.Stack()))
		c.Abort()
		if c.Writer.Written() {
			return
		}
		m.write(c, httperr.Logged(id))
	}()
	c.Next()
}

// refuse answers with an error's problem.
func (m *middleware) refuse(c *gin.Context, err error) { m.write(c, httperr.From(err)) }

func (m *middleware) write(c *gin.Context, p httperr.Problem) {
	if err := httperr.Write(c.Writer, p); err != nil {
		m.log.Debug("answer not written", "request_id", c.Writer.Header().Get(api.RequestIDHeader), "error",
			err)
	}
}

// secure sets what keeps an answer from being taken for a page, kept by a cache, or framed. The slices are
// shared and only ever replaced, never written to.
func secure(c *gin.Context) {
	h := c.Writer.Header()
	h["X-Content-Type-Options"] = nosniff
	h["Content-Security-Policy"] = noContent
	h["Referrer-Policy"] = noReferrer
	h["Cache-Control"] = noStore
	c.Next()
}

// httpsOnly has browsers come over https alone for two years. Other hosts below the name are not ours to
// speak for.
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

// refusalLines is how many lines a second the log has at most of requests that were refused because a
// database or an index is away, or because too many came. Callers ask again and again then, and would fill
// the log's disk; why it is so stands in it once, and the metrics count all.
const refusalLines = 5

// refusals thins the lines of refused requests out.
type refusals struct {
	mu     sync.Mutex
	second int64
	lines  int
	// left are those without a line since the last one that has one.
	left int
}

// line says whether a refusal gets a line, and how many before it got none.
func (r *refusals) line(now time.Time) (ok bool, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Requests that end together do not come here in the order of their ends.
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
