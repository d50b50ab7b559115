package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// DefaultTimeout is the timeout of a request without one.
const DefaultTimeout = 15 * time.Second

// DefaultMaxIdlePerHost is the default of Options.MaxIdlePerHost. It should be at least the maximum of
// concurrent attempts to one host over all its lanes. Each connection above it costs a handshake per attempt.
const DefaultMaxIdlePerHost = 64

// Options configures a client. The zero value is usable.
type Options struct {
	// Guard decides which addresses may be connected to. Nil means NewGuard(nil), which permits public
	// addresses only.
	Guard *Guard
	// Transport replaces the client's own transport and with it the guard. It is for tests. It must honor the
	// context of requests. Nil means the guarded transport.
	Transport http.RoundTripper
	// Version is the version in the User-Agent header. Empty means "dev".
	Version string
	// MaxIdlePerHost is the maximum of idle connections kept for one host. Zero means DefaultMaxIdlePerHost.
	MaxIdlePerHost int
	// Resolver resolves host names. Nil means the resolver of Go, which uses the system's configuration.
	Resolver Resolver
	// Logger receives the stacks of panics: a panic ends one attempt and not the process. Nil discards them.
	Logger *slog.Logger
}

// A Client sends attempts. It is safe for concurrent use.
type Client struct {
	// http makes single attempts, see newHTTPClient.
	http *retryablehttp.Client
	// transport is nil if Options.Transport replaces it. A replacement does not report which connection it
	// uses.
	transport *transport
	userAgent string
	logger    *slog.Logger
	// presets are the compiled presets by name; they are read-only. rules caches rules by their JSON text.
	presets map[string]*rule.Rule
	rules   *parse.Cache[store.JSONText, *rule.Rule]
	// polls caches poll rules by their JSON text.
	polls   *parse.Cache[store.JSONText, *rule.Poll]
	signers *sign.Cache
}

// New returns a client. It fails if an option is invalid.
func New(o Options) (*Client, error) {
	if o.MaxIdlePerHost < 0 {
		return nil, fmt.Errorf("outbound: MaxIdlePerHost is %d; it must not be negative", o.MaxIdlePerHost)
	}
	version := cmp.Or(o.Version, "dev")
	if why := sign.CheckHeader(store.Header{Name: "X-Version", Value: version}); why != "" {
		return nil, fmt.Errorf("outbound: version: %s", why)
	}
	presets, err := rule.CompilePresets()
	if err != nil {
		return nil, err
	}
	c := &Client{
		userAgent: "dispatcher/" + version,
		logger:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		presets:   presets,
		rules:     parse.NewCache[store.JSONText, *rule.Rule](maxRules),
		polls:     parse.NewCache[store.JSONText, *rule.Poll](maxRules),
		signers:   sign.NewCache(),
	}
	if o.Transport != nil {
		c.http = newHTTPClient(o.Transport)
		return c, nil
	}
	if o.Guard == nil {
		o.Guard, err = NewGuard(nil)
		if err != nil {
			return nil, fmt.Errorf("outbound: %w", err)
		}
	}
	if o.Resolver == nil {
		o.Resolver = &net.Resolver{PreferGo: true}
	}
	c.transport = newTransport(newDialer(o.Guard, o.Resolver),
		cmp.Or(o.MaxIdlePerHost, DefaultMaxIdlePerHost))
	c.http = newHTTPClient(c.transport)
	return c, nil
}

// CloseIdle closes all idle connections. Connections in use are not affected.
func (c *Client) CloseIdle() {
	if c.transport != nil {
		c.transport.pool.closeIdle()
	}
}

// Send makes one attempt and returns its result. It writes at most one request and does not panic.
//
// Send returns when the answer is read up to the limits or when the request's timeout has passed. If ctx is
// canceled, it returns at once with class interrupted. ctx should have no deadline: the attempt would time
// out at that deadline.
func (c *Client) Send(ctx context.Context, r Request) (resp Response) {
	if r.Timeout <= 0 {
		r.Timeout = DefaultTimeout
	}
	start := time.Now() // before the timeout starts, so that a timed out attempt lasts at least its timeout
	timed, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	a := &attempt{Context: timed, start: start, timeout: r.Timeout, gotConn: c.transport == nil}
	defer func() {
		if v := recover(); v != nil {
			c.logger.Error("attempt panicked", "callback_id", r.ID, "panic", fmt.Sprint(v), "stack",
				string(debug.Stack()))
			resp = Response{RequestHeaders: resp.RequestHeaders, KeyID: resp.KeyID, Status: resp.Status,
				MaxErrors: resp.MaxErrors}
			resp.fail(failure{class: store.ClassPanic, text: "internal error while sending; see the log",
				uncharged: true, reached: a.gotConn})
		}
		resp.StartedAt, resp.EndedAt = a.start, time.Now()
		resp.Timings = a.timings(resp.EndedAt)
	}()
	c.send(ctx, a, &r, &resp)
	return resp
}

// send makes the attempt and fills in resp. Send adds the times and converts a panic.
func (c *Client) send(ctx context.Context, a *attempt, r *Request, resp *Response) {
	want, why := c.criteriaFor(r)
	if why != "" {
		resp.fail(invalidRequest(why))
		return
	}
	if r.Poll {
		resp.MaxErrors = *want.poll.ErrorBudget
	}
	u, err := r.parseURL()
	if err != nil {
		resp.fail(invalidRequest(err.Error()))
		return
	}
	p, err := c.prepare(r, u, a.start)
	if err != nil {
		resp.fail(prepareFailure(err))
		return
	}
	resp.RequestHeaders, resp.KeyID = p.redacted, p.keyID
	req, err := newHTTPRequest(a, r, u, p.header)
	if err != nil {
		resp.fail(prepareFailure(err))
		return
	}
	got, err := c.http.Do(&retryablehttp.Request{Request: req})
	if err != nil {
		resp.fail(classifyError(ctx, a, err, r.Fresh))
		return
	}
	a.onFirstByte() // for transports that do not report it
	ans := answer{status: got.StatusCode, header: got.Header}
	defer ans.release()
	ans.read(got, p.hidden)
	resp.recordAnswer(&ans, p.hidden)
	want.hidden = p.hidden
	resp.conclude(ctx, a, &ans, want)
}

// criteriaFor returns the criteria for the answer. If the rule is invalid, why is the reason, and nothing may
// be sent.
func (c *Client) criteriaFor(r *Request) (want criteria, why string) {
	name, text := r.Success.Name, r.Success.Rule
	switch {
	case r.Poll:
		want.poll, want.name = compiled(c.polls, text, rule.CompilePoll), cmp.Or(name, rule.PollName)
		if want.poll == nil {
			return want, "the poll rule is invalid"
		}
		return want, ""
	case text == "":
		want.rule, want.name = c.presets[name], cmp.Or(name, rule.Default)
	default:
		want.rule, want.name = compiled(c.rules, text, rule.Compile), cmp.Or(name, rule.CustomName)
	}
	if want.rule == nil {
		return want, "the success rule is unknown or invalid"
	}
	return want, ""
}

// compiled returns the compiled rule of a text, from the cache if possible. It is nil if the text is invalid.
func compiled[R any](
	kept *parse.Cache[store.JSONText, *R], text store.JSONText, compile func([]byte) (*R, []store.FieldError),
) *R {
	r, ok := kept.Get(text)
	if ok {
		return r
	}
	r, wrong := compile([]byte(text))
	if len(wrong) == 0 {
		kept.Put(text, r)
	}
	return r
}

// recordAnswer copies the storable parts of an answer into the response, with credentials masked.
func (resp *Response) recordAnswer(a *answer, hidden []string) {
	resp.Answered = true
	resp.Status = a.status
	resp.ResponseBody, resp.ResponseTruncated = a.text, a.truncated
	resp.ResponseHeaders = storedHeaders(a.header, hidden)
	//lint:ignore SA1008 wrappedTransport moved the header to this key to hide it from http.Client
	if location := a.header[locationKey]; len(location) > 0 {
		resp.Location = storedHeader(store.MaskURL(parse.Cut(location[0], MaxURLBytes)), hidden)
		resp.ResponseHeaders = append(resp.ResponseHeaders,
			store.Header{Name: "location", Value: resp.Location})
	}
}

// prepareFailure describes a request that could not be prepared. A missing or unfit key is a local failure:
// it is diverted until somebody provides a key. Anything else is an invalid request.
func prepareFailure(err error) failure {
	if _, bad := errors.AsType[*sign.KeyError](err); bad {
		return failure{class: store.ClassSignError, text: err.Error(), uncharged: true, local: true}
	}
	return invalidRequest(err.Error())
}

func invalidRequest(text string) failure {
	return failure{class: store.ClassInvalidRequest, text: strings.ToValidUTF8(text, "")}
}

// maxRules is the maximum of cached success rules, and of cached poll rules.
const maxRules = 1000
