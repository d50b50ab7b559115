package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// RequestIDHeader is the response header with the request's id. A middleware sets it. The API reads it from
// the response when it logs an error.
const RequestIDHeader = "X-Request-Id"

// Options configure an API. Engine, Store and AdminKey are required.
type Options struct {
	Engine Engine
	Store  query.Store
	// AdminKey is the key of the settings. It has every permission, in the default project or in the project
	// that ProjectHeader names.
	AdminKey string
	// Guesses slows down callers that try keys. Nil: the API makes its own. RequestsPerSecond is the maximum
	// rate of each key, including the admin key. Zero: no limit.
	Guesses *query.Guesses
	// Merchants limits the keys of one endpoint. Nil: the API makes its own.
	Merchants         *query.MerchantLimits
	RequestsPerSecond int
	// ReportTexts write a delivery report, by the code of the language. English, "en", is the default.
	ReportTexts map[string]func(*control.Report) []byte
	// PublicURL is the URL that browsers use. If it is empty, the links that the API makes are paths.
	PublicURL string
	// Logger gets the errors that become a 500. Nil: they are not logged.
	Logger *slog.Logger
	// Tracer records the requests that accept callbacks. Nil: nothing is recorded.
	Tracer *trace.Tracer
	// Timeout limits a request, except those that wait or read everything. Zero: 30 s.
	Timeout time.Duration
}

// An API handles the routes under /v1, the OpenAPI document and its page.
type API struct {
	Options
	keyHash [sha256.Size]byte
	rates   *query.Rates
	// projects caches the existing projects that ProjectHeader has named. A project is never removed, so an
	// entry never becomes stale.
	projects sync.Map
	budgets  bodyBudgets
	// knownCursorKey caches the result of CursorKey. Nil: not read yet.
	knownCursorKey atomic.Pointer[[]byte]
}

// New returns an API, or an error if an option is missing.
func New(o Options) (*API, error) {
	if o.Engine == nil || o.Store == nil || o.AdminKey == "" || o.ReportTexts["en"] == nil {
		return nil, errors.New("new API: Engine, Store, AdminKey and an English report are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Guesses == nil {
		o.Guesses = new(query.Guesses)
	}
	if o.Merchants == nil {
		o.Merchants = query.NewMerchantLimits()
	}
	rates := query.NewRates(o.RequestsPerSecond)
	return &API{
		Options: o, keyHash: sha256.Sum256([]byte(o.AdminKey)), rates: rates, budgets: newBodyBudgets(),
	}, nil
}

// A handler handles one authenticated request. If it returns an error it has written nothing, and its caller
// responds with the error.
type handler func(ctx context.Context, c *gin.Context, who caller) error

// longTimeout limits the calls that read everything.
const longTimeout = 15 * time.Minute

// serve authenticates a request, checks the scope of its key, and calls h with a timeout. own replaces h for
// a key of one endpoint.
func (a *API) serve(scope store.Scope, h handler, own ownHandler, timeout time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
		defer cancel()
		who, err := a.authenticate(ctx, c)
		serve := h
		switch {
		case err != nil:
		case who.OfEndpoint():
			serve, err = a.admitOwn(who, own)
		case !who.Allows(scope):
			err = missingScope(scope)
		}
		if err == nil {
			err = a.withBudget(ctx, c, who, serve)
		}
		if err != nil {
			a.fail(c, err)
		}
	}
}

// traced continues the trace of the caller in an accept, and records the request if that trace is recorded.
func (a *API) traced(h handler) handler {
	return func(ctx context.Context, c *gin.Context, who caller) (err error) {
		ctx, span := a.Tracer.Request(ctx, c.Request.Header["Traceparent"], c.Request.Method, c.FullPath())
		if span == nil {
			return h(ctx, c, who)
		}
		c.Request = c.Request.WithContext(span.In(c.Request.Context())) // for the lines of the log
		status := http.StatusInternalServerError                        // of a panic
		defer func() { span.EndRequest(status) }()
		err = h(ctx, c, who)
		status = c.Writer.Status()
		if err != nil {
			status = httperr.From(err).Status
		}
		return err
	}
}

// serveLong is serve for a handler that may take longer than the server's read and write timeouts. It lifts
// them only after the body was read, so that a slow sender cannot use the longer timeout.
func (a *API) serveLong(scope store.Scope, h handler, timeout time.Duration) gin.HandlerFunc {
	return a.serve(scope, func(ctx context.Context, c *gin.Context, who caller) error {
		extend := func() error {
			return query.ExtendDeadlines(c.Writer, time.Now().Add(timeout+a.Timeout))
		}
		if in, ok := c.Request.Body.(*budgetedBody); ok && c.Request.ContentLength != 0 {
			in.onRead = extend
		} else if err := extend(); err != nil {
			return err
		}
		return h(ctx, c, who)
	}, ownHandler{}, timeout)
}

// fail responds with the problem of an error.
func (a *API) fail(c *gin.Context, err error) {
	p := a.problem(c, err)
	if c.Writer.Written() {
		return
	}
	a.logWriteError(c, httperr.Write(c.Writer, p))
}

// problem returns the problem of an error. It logs an error whose text the caller must not see; the problem
// then names the request id of the log line.
func (a *API) problem(c *gin.Context, err error) httperr.Problem {
	p := httperr.From(err)
	if p.Status != http.StatusInternalServerError {
		return p
	}
	id := c.Writer.Header().Get(RequestIDHeader)
	log := trace.FromContext(c.Request.Context()).Logger(a.Logger)
	log.Error("request failed", "request_id", id, "route", c.FullPath(), "error", err)
	return httperr.Logged(id)
}

// logWriteError logs that a response could not be written, at debug level: the caller has usually closed the
// connection.
func (a *API) logWriteError(c *gin.Context, err error) {
	if err != nil {
		id := c.Writer.Header().Get(RequestIDHeader)
		a.Logger.Debug("response not written", "request_id", id, "route", c.FullPath(), "error", err)
	}
}

var jsonType = []string{"application/json; charset=utf-8"}

// writeJSON sends a JSON response. It logs an error of the connection and does not return it, because no one
// can receive an error response.
func (a *API) writeJSON(c *gin.Context, status int, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = jsonType
	if len(body) > 2048 { // net/http sets the length of shorter bodies.
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	c.Writer.WriteHeader(status)
	_, err := c.Writer.Write(body)
	a.logWriteError(c, err)
}

// buffers holds the buffers of responses to accepts, which are frequent.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptBuffer is the maximum size of a buffer that is reused.
const maxKeptBuffer = 256 << 10

// getBuffer returns an empty buffer. The caller returns it with putBuffer after the response was written.
func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
