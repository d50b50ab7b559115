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

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// RequestIDHeader is the response header that carries the request's id. The API reads it back from the
// response when it logs an error, so whatever stands in front of it may set it.
const RequestIDHeader = "X-Request-Id"

// Options are what an API is made of. The engine, the store and the key are required.
type Options struct {
	Engine Engine
	Store  query.Store
	// AdminKey is the settings' key: it may do everything, in the default project or in the one that
	// ProjectHeader names.
	AdminKey string
	// Guesses slows down who tries keys; nil: one of the API's own. RequestsPerSecond is how many requests
	// each key may make a second, the settings' one too; zero: no limit.
	Guesses           *query.Guesses
	RequestsPerSecond int
	// Logger gets the errors that are answered with 500; nil: they are not logged.
	Logger *slog.Logger
	// Timeout bounds one request, those apart that wait for something or walk through everything; zero: 30 s.
	Timeout time.Duration
}

// An API answers the routes under /v1 and the OpenAPI document.
type API struct {
	Options
	keyHash [sha256.Size]byte
	rates   *query.Rates
	// projects are those that ProjectHeader has named and that exist. A project is never removed.
	projects sync.Map
	budgets    bodyBudgets
	// knownCursorKey is what CursorKey has returned; nil: nothing yet.
	knownCursorKey atomic.Pointer[[]byte]
}

// New returns the API, or what the options lack.
func New(o Options) (*API, error) {
	if o.Engine == nil || o.Store == nil || o.AdminKey == "" {
		return nil, errors.New("the API needs an engine, a store and an admin key")
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
	rates := query.NewRates(o.RequestsPerSecond)
	return &API{
		Options: o, keyHash: sha256.Sum256([]byte(o.AdminKey)), rates: rates, budgets: newBodyBudgets(),
	}, nil
}

// A handler answers one authenticated request, or returns the error that is to be answered; then it has
// written nothing.
type handler func(ctx context.Context, c *gin.Context, who caller) error

// longTimeout bounds the calls that walk through everything.
const longTimeout = 15 * time.Minute

// serve makes a handler a route's: for those whose key has the scope, and within the time-out.
func (a *API) serve(scope store.Scope, h handler, timeout time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
		defer cancel()
		who, err := a.authenticate(ctx, c)
		if err == nil && !who.Allows(scope) {
			err = missingScope(scope)
		}
		if err == nil {
			err = a.withBudget(ctx, c, who, h)
		}
		if err != nil {
			a.fail(c, err)
		}
	}
}

// serveLong makes a handler that may take that long a route's, beyond the server's time-outs too. They are
// lifted when the body has been read: until then the request's sender is what takes long.
func (a *API) serveLong(scope store.Scope, h handler, most time.Duration) gin.HandlerFunc {
	return a.serve(scope, func(ctx context.Context, c *gin.Context, who caller) error {
		whole := func() error { return query.Lift(c.Writer, time.Now().Add(most+a.Timeout)) }
		if in, ok := c.Request.Body.(*budgetedBody); ok && c.Request.ContentLength != 0 {
			in.onRead = whole
		} else if err := whole(); err != nil {
			return err
		}
		return h(ctx, c, who)
	}, most)
}

// fail answers with the error's problem, and logs the error if the answer may not say what it was.
func (a *API) fail(c *gin.Context, err error) {
	p := a.problem(c, err)
	if c.Writer.Written() {
		return
	}
	a.logWriteError(c, httperr.Write(c.Writer, p))
}

// problem returns the problem of an error. One that the caller may not see is logged, and the problem points
// to the log.
func (a *API) problem(c *gin.Context, err error) httperr.Problem {
	p := httperr.From(err)
	if p.Status != http.StatusInternalServerError {
		return p
	}
	id := c.Writer.Header().Get(RequestIDHeader)
	a.Logger.Error("request failed", "request_id", id, "route", c.FullPath(), "error", err)
	return httperr.Logged(id)
}

// logWriteError records that an answer could not be written: the caller went away, which is worth a line only when
// looked for.
func (a *API) logWriteError(c *gin.Context, err error) {
	if err != nil {
		a.Logger.Debug("answer not written", "request_id", c.Writer.Header().Get(RequestIDHeader), "route",
			c.FullPath(), "error", err)
	}
}

var jsonType = []string{"application/json; charset=utf-8"}

// writeJSON writes a JSON writeJSON. An error of the connection is logged, not returned: there is nobody to writeJSON.
func (a *API) writeJSON(c *gin.Context, status int, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = jsonType
	if len(body) > 2048 { // net/http says the length of shorter ones by itself.
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	c.Writer.WriteHeader(status)
	_, err := c.Writer.Write(body)
	a.logWriteError(c, err)
}

// buffers are for answers to accepts, which are frequent.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptBuffer is up to what size a buffer is kept for the next answer.
const maxKeptBuffer = 256 << 10

// getBuffer returns an empty buffer, which giveBuffer takes back when the answer has been written.
func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
