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

// DefaultTimeout is the timeout of a request that names none.
const DefaultTimeout = 15 * time.Second

// DefaultMaxIdlePerHost is how many connections are kept for one host unless the options say otherwise. It
// should be no less than the attempts that may be in flight to it, over all its lanes: what is beyond it
// costs a handshake each time.
const DefaultMaxIdlePerHost = 64

// Options of a client. The zero value is usable.
type Options struct {
	// Guard decides where connections may go. Nil: one without exceptions.
	Guard *Guard
	// Transport replaces the client's own transport, and with it the guard. It is for tests, and must honour
	// the request's context. Nil: the guarded one.
	Transport http.RoundTripper
	// Version stands in the User-Agent. Empty: "dev".
	Version string
	// MaxIdlePerHost is how many idle connections are kept for one destination. Zero: DefaultMaxIdlePerHost.
	MaxIdlePerHost int
	// Resolver looks names up. Nil: the system's, by Go's own code.
	Resolver Resolver
	// Logger gets the stacks of panics, which end as an attempt and not as a crash. Nil: they are dropped.
	Logger *slog.Logger
}

// A Client sends everything that leaves. It is safe for concurrent use.
type Client struct {
	engine *retryablehttp.Client
	// transport is nil where another one stands in its place, which does not report the connections that it
	// uses.
	transport *transport
	userAgent string
	logger    *slog.Logger
	// presets are read-only; rules are those that were given whole, by their text.
	presets map[string]*rule.Rule
	rules   *parse.Keep[store.JSONText, *rule.Rule]
	// polls are the rules of polls, by their text.
	polls   *parse.Keep[store.JSONText, *rule.Poll]
	signers *sign.Cache
}

// New returns a client.
func New(o Options) (*Client, error) {
	if o.MaxIdlePerHost < 0 {
		return nil, fmt.Errorf("outbound: %d idle connections per host cannot be kept", o.MaxIdlePerHost)
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
		rules:     parse.NewKeep[store.JSONText, *rule.Rule](maxRules),
		polls:     parse.NewKeep[store.JSONText, *rule.Poll](maxRules),
		signers:   sign.NewCache(),
	}
	if o.Transport != nil {
		c.engine = newEngine(o.Transport)
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
	c.engine = newEngine(c.transport)
	return c, nil
}

// CloseIdle closes the connections that are kept and not in use.
func (c *Client) CloseIdle() {
	if c.transport != nil {
		c.transport.pool.close()
	}
}

// Send makes one attempt and says how it ended. It sends at most one request on the wire. It returns when the
// answer has been read up to the limits, when the request's timeout has passed, or when the context ends,
// which interrupts the attempt; the context should carry no deadline of its own. It does not panic.
func (c *Client) Send(ctx context.Context, r Request) (resp Response) {
	if r.Timeout <= 0 {
		r.Timeout = DefaultTimeout
	}
	start := time.Now() // first, so that no attempt that times out is shorter than its timeout
	timed, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	a := &attempt{Context: timed, start: start, timeout: r.Timeout, gotConn: c.transport == nil}
	defer func() {
		if v := recover(); v != nil {
			c.logger.Error("attempt panicked", "callback_id", r.ID, "panic", fmt.Sprint(v), "stack",
				string(debug.Stack()))
			resp = Response{RequestHeaders: resp.RequestHeaders, KeyID: resp.KeyID, Status: resp.Status,
				MaxErrors: resp.MaxErrors}
			resp.fail(finding{class: store.ClassPanic, text: "sending panicked; the log has the stack",
				uncharged: true, reached: a.gotConn})
		}
		resp.StartedAt, resp.EndedAt = a.start, time.Now()
		resp.Timings = a.timings(resp.EndedAt)
	}()
	c.send(ctx, a, &r, &resp)
	return resp
}

func (c *Client) send(ctx context.Context, a *attempt, r *Request, resp *Response) {
	by, why := c.judgementOf(r)
	if why != "" {
		resp.fail(invalidRequest(why))
		return
	}
	if r.Poll {
		resp.MaxErrors = *by.poll.ErrorBudget
	}
	u, err := parseURL(r.URL)
	if err != nil {
		resp.fail(invalidRequest(err.Error()))
		return
	}
	p, err := c.prepare(r, u, a.start)
	if err != nil {
		resp.fail(unprepared(err))
		return
	}
	resp.RequestHeaders, resp.KeyID = p.shown, p.keyID
	req, err := newHTTPRequest(a, r, u, p.header)
	if err != nil {
		resp.fail(unprepared(err))
		return
	}
	got, err := c.engine.Do(&retryablehttp.Request{Request: req})
	if err != nil {
		resp.fail(diagnose(ctx, a, err, r.Fresh))
		return
	}
	a.onFirstByte() // for transports that do not report it
	ans := answer{status: got.StatusCode, header: got.Header}
	defer ans.release()
	ans.read(got, p.hidden)
	resp.take(&ans, p.hidden)
	by.hidden = p.hidden
	resp.conclude(ctx, a, &ans, by)
}

// judgementOf returns what the answer will be judged by, or why nothing can be sent.
func (c *Client) judgementOf(r *Request) (by judgement, why string) {
	name, text := r.Success.Name, r.Success.Rule
	switch {
	case r.Poll:
		by.poll, by.name = compiled(c.polls, text, rule.CompilePoll), cmp.Or(name, rule.PollName)
		if by.poll == nil {
			return by, "the rule of the poll cannot be read"
		}
		return by, ""
	case text == "":
		by.rule, by.name = c.presets[name], cmp.Or(name, rule.Default)
	default:
		by.rule, by.name = compiled(c.rules, text, rule.Compile), cmp.Or(name, rule.CustomName)
	}
	if by.rule == nil {
		return by, "the success rule is unknown or cannot be read"
	}
	return by, ""
}

// compiled returns a rule by its text, which is compiled once; nil: it cannot be read.
func compiled[R any](
	kept *parse.Keep[store.JSONText, *R], text store.JSONText, compile func([]byte) (*R, []store.FieldError),
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

// take fills in what is kept of an answer.
func (resp *Response) take(a *answer, hidden []string) {
	resp.Answered = true
	resp.Status = a.status
	resp.ResponseBody, resp.ResponseTruncated = a.text, a.truncated
	resp.ResponseHeaders = keptHeaders(a.header, hidden)
	//lint:ignore SA1008 the transport files it under a name that http.Client does not look for
	if location := a.header[locationKey]; len(location) > 0 {
		resp.Location = keptHeader(store.MaskURL(parse.Cut(location[0], MaxURLBytes)), hidden)
		resp.ResponseHeaders = append(resp.ResponseHeaders,
			store.Header{Name: "location", Value: resp.Location})
	}
}

// unprepared is what is found of a request that could not be made.
func unprepared(err error) finding {
	if _, bad := errors.AsType[*sign.KeyError](err); bad {
		return finding{class: store.ClassSignError, text: err.Error(), uncharged: true, local: true}
	}
	return invalidRequest(err.Error())
}

func invalidRequest(text string) finding {
	return finding{class: store.ClassInvalidRequest, text: strings.ToValidUTF8(text, "")}
}

// maxRules is how many compiled rules a client keeps, beside the presets.
const maxRules = 1000
