package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// RequestIDHeader is the response header that carries the request's id. The API reads it back from the response when it
// logs an error, so whatever stands in front of it may set it.
const RequestIDHeader = "X-Request-Id"

// Callbacks is what the API asks of the engine for single callbacks.
type Callbacks interface {
	// Accept judges and commits; it answers each submission in its place. Its error means that nothing was accepted.
	Accept(ctx context.Context, project string, subs []dispatch.Submission) ([]dispatch.Receipt, error)
	Cancel(ctx context.Context, project, id string, by store.Actor) (store.CanceledCallback, error)
	CancelRef(ctx context.Context, project, ref, topic string, by store.Actor) ([]store.CanceledCallback, error)
	Retry(ctx context.Context, project, id string, r dispatch.RetryRequest, by store.Actor) (store.Callback, error)
	Reschedule(ctx context.Context, project, id string, due *int64, delay *time.Duration, by store.Actor) (store.Callback, error)
	// Now is the clock that decides what is due, in Unix milliseconds.
	Now() int64
}

// Secrets is what the API asks of the engine for signing secrets.
type Secrets interface {
	// LaneSecret returns the secret that signs for a lane, as "whsec_…".
	LaneSecret(ctx context.Context, project, lane string, by store.Actor) (string, error)
	// RotateSecret makes a new project secret; the old one signs beside it for 24 hours.
	RotateSecret(ctx context.Context, project string, by store.Actor) error
}

// Index is what the API asks of the engine about the index as a whole.
type Index interface {
	// Verify names at most 100 ids of each difference, VerifyAll every one.
	Verify(ctx context.Context) (dispatch.Drift, error)
	VerifyAll(ctx context.Context) (dispatch.Drift, error)
	Rebuild(ctx context.Context, dryRun bool, by store.Actor) (dispatch.RebuildReport, error)
	// Stats are the sizes of all shards together.
	Stats(ctx context.Context) (schedule.Stats, error)
}

// Reads is what the API asks of the store.
type Reads interface {
	Get(ctx context.Context, project, id string) (store.Callback, error)
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
	Attempts(ctx context.Context, project, id string) ([]store.Attempt, error)
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	// AuditEntries returns entries newest first, those before the entry named after; "" is the beginning.
	AuditEntries(ctx context.Context, project string, after string, limit int) ([]store.AuditEntry, error)
}

// Options are what an API is made of. The four parts and the key are required.
type Options struct {
	Callbacks Callbacks
	Secrets   Secrets
	Index     Index
	Reads     Reads
	// AdminKey is the key that may do everything in the default project.
	AdminKey string
	// Logger gets the errors that are answered with 500; nil: they are not logged.
	Logger *slog.Logger
	// Timeout bounds one request, verify and rebuild of the index apart; zero: 30 s.
	Timeout time.Duration
}

// An API answers the routes under /v1 and the OpenAPI document.
type API struct {
	Options
	keyHash [sha256.Size]byte
}

// New returns the API, or what the options lack.
func New(o Options) (*API, error) {
	if o.Callbacks == nil || o.Secrets == nil || o.Index == nil || o.Reads == nil {
		return nil, errors.New("the API needs callbacks, secrets, an index and reads")
	}
	if o.AdminKey == "" {
		return nil, errors.New("the API needs an admin key")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	return &API{Options: o, keyHash: sha256.Sum256([]byte(o.AdminKey))}, nil
}

// A Route is one method and path that the API answers; parameters of the path are written ":id".
type Route struct {
	Method, Path string
	handler      gin.HandlerFunc
}

// Routes returns every route of the API.
func (a *API) Routes() []Route {
	const one = "/v1/callbacks/:id"
	return []Route{
		{"POST", "/v1/callbacks", a.short(a.accept)},
		{"POST", "/v1/callbacks/batch", a.short(a.acceptBatch)},
		{"POST", "/v1/callbacks/cancel", a.short(a.cancelRef)},
		{"GET", "/v1/callbacks", a.short(a.list)},
		{"GET", one, a.short(a.get)},
		{"GET", one + "/attempts", a.short(a.attempts)},
		{"GET", one + "/payload", a.short(a.payload)},
		{"POST", one + "/cancel", a.short(a.cancel)},
		{"POST", one + "/retry", a.short(a.retry)},
		{"POST", one + "/reschedule", a.short(a.reschedule)},
		{"GET", "/v1/stats", a.short(a.stats)},
		{"GET", "/v1/secret", a.short(a.secret)},
		{"POST", "/v1/secret/rotate", a.short(a.rotateSecret)},
		{"POST", "/v1/index/verify", a.long(a.verify)},
		{"POST", "/v1/index/rebuild", a.long(a.rebuild)},
		{"GET", "/v1/audit", a.short(a.audit)},
		{"GET", "/openapi.yaml", a.openapi},
	}
}

// Register adds the routes to a router.
func (a *API) Register(r gin.IRouter) {
	for _, route := range a.Routes() {
		r.Handle(route.Method, route.Path, route.handler)
	}
}

// A caller is who makes a request, as its key says.
type caller struct {
	project string
	name    string
}

// by returns the caller as the audit names it.
func (w caller) by(reason string) store.Actor { return store.Actor{Name: w.name, Reason: reason} }

// authenticate returns who holds the request's key. Hashes are compared, in constant time, so that neither the time
// nor the length of a guess says anything.
func (a *API) authenticate(r *http.Request) (caller, error) {
	const scheme = "Bearer "
	h := r.Header.Get("Authorization")
	if len(h) <= len(scheme) || !strings.EqualFold(h[:len(scheme)], scheme) {
		return caller{}, httperr.ErrUnauthorized
	}
	sum := sha256.Sum256([]byte(h[len(scheme):]))
	if subtle.ConstantTimeCompare(sum[:], a.keyHash[:]) != 1 {
		return caller{}, httperr.ErrUnauthorized
	}
	return caller{project: store.DefaultProject, name: "admin key"}, nil
}

// A handler answers one authenticated request, or returns the error that is to be answered; then it has written nothing.
type handler func(ctx context.Context, c *gin.Context, who caller) error

// longest bounds the calls that walk the whole index.
const longest = 15 * time.Minute

// short makes a handler a route's, with the usual time-out.
func (a *API) short(h handler) gin.HandlerFunc { return a.serve(h, a.Timeout) }

// long makes a handler a route's that may outlast the server's time-outs. Both are lifted: when the read deadline passes
// net/http ends the request's context, even if the body was read long ago.
func (a *API) long(h handler) gin.HandlerFunc {
	return a.serve(func(ctx context.Context, c *gin.Context, who caller) error {
		until := time.Now().Add(longest + a.Timeout)
		rc := http.NewResponseController(c.Writer)
		for _, set := range []func(time.Time) error{rc.SetReadDeadline, rc.SetWriteDeadline} {
			if err := set(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return fmt.Errorf("lift the time-outs: %w", err)
			}
		}
		return h(ctx, c, who)
	}, longest)
}

func (a *API) serve(h handler, timeout time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		who, err := a.authenticate(c.Request)
		if err == nil {
			ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
			defer cancel()
			err = h(ctx, c, who)
		}
		if err != nil {
			a.fail(c, err)
		}
	}
}

// fail answers with the error's problem, and logs the error if the answer may not say what it was.
func (a *API) fail(c *gin.Context, err error) {
	p := httperr.From(err)
	if p.Status == http.StatusInternalServerError {
		p = a.internal(c, err)
	}
	if c.Writer.Written() {
		return
	}
	a.wrote(c, httperr.Write(c.Writer, p))
}

// internal logs an error that the caller may not see, and returns the problem that points to the log.
func (a *API) internal(c *gin.Context, err error) httperr.Problem {
	id := c.Writer.Header().Get(RequestIDHeader)
	a.Logger.Error("request failed", "request_id", id, "route", c.FullPath(), "error", err)
	return httperr.Logged(id)
}

// wrote records that an answer could not be written: the caller went away, which is worth a line only when looked for.
func (a *API) wrote(c *gin.Context, err error) {
	if err != nil {
		a.Logger.Debug("answer not written", "request_id", c.Writer.Header().Get(RequestIDHeader), "route", c.FullPath(), "error", err)
	}
}

var jsonType = []string{"application/json; charset=utf-8"}

// answer writes a JSON answer. An error of the connection is logged, not returned: there is nobody to answer.
func (a *API) answer(c *gin.Context, status int, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = jsonType
	if len(body) > 2048 { // net/http says the length of shorter ones by itself.
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	c.Writer.WriteHeader(status)
	_, err := c.Writer.Write(body)
	a.wrote(c, err)
}

// param returns the callback's bare id from the path. What cannot be an id is not found.
func param(c *gin.Context) (string, error) {
	id, ok := bareID(c.Param("id"))
	if !ok {
		return "", store.ErrNotFound
	}
	return id, nil
}

// bareID takes the prefix from a callback's id, and says whether the rest is a ULID as this process writes them.
func bareID(s string) (string, bool) {
	id, ok := strings.CutPrefix(s, store.CallbackPrefix)
	if !ok || len(id) != 26 || id[0] > '7' {
		return "", false
	}
	for i := range len(id) {
		if strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", id[i]) < 0 {
			return "", false
		}
	}
	return id, true
}
