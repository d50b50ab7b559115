package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// ProjectHeader names the project of a request. Only the admin key of the settings may choose a project.
	ProjectHeader = "Dispatcher-Project"
	// MaskedHeader says which part of a payload is masked.
	MaskedHeader = "Dispatcher-Masked"

	defaultMaxAnswer = 64 << 20
	// defaultTimeout is longer than the 30 seconds after which a server gives up and responds with 503.
	defaultTimeout = 45 * time.Second
	// longTimeout is for the calls for which a server has 15 minutes.
	longTimeout    = 15*time.Minute + 15*time.Second
	defaultRetries = 4
)

// Options configure a Client.
type Options struct {
	// URL is the server's URL: scheme, host and, behind a proxy, the path before /v1. Required.
	URL string
	// Key is the API key. Required. The options are printed, logged and encoded (JSON, XML, YAML) without it,
	// and no decoder sets it: a program that reads its options from a file must set the key itself.
	Key string `json:"-" xml:"-" yaml:"-"`
	// Project is sent with every request. Empty: the key's own project.
	Project string
	// HTTPClient sends the requests: set its Transport for TLS, a proxy or traces. Its CheckRedirect is not
	// used. Nil: a client that keeps up to 100 idle connections to the server.
	HTTPClient *http.Client
	// Timeout limits each try of a call. Zero: that of HTTPClient, or 45 s. Calls for which the server itself
	// takes longer have more time: a wait for outcomes its wait, and reconcile, verify and rebuild 15
	// minutes.
	Timeout time.Duration
	// Retries is how often a call is sent again that may be; see the package comment. Zero: 4. Negative: no
	// call is sent again.
	Retries int
	// UserAgent is sent with every request. Empty: dispatcher-go.
	UserAgent string
	// MaxAnswer is the maximum size of a response in bytes. Zero: 64 MiB. A longer response is an error.
	MaxAnswer int64
	// Logger gets a warning for each request that is sent again. Nil: none, but FollowOutcomes, which does
	// not return temporary errors, uses slog.Default().
	Logger *slog.Logger
}

// Format prints the options without the key.
func (o Options) Format(f fmt.State, verb rune) {
	type plain Options // has no Format
	if o.Key != "" {
		o.Key = "(hidden)"
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), plain(o))
}

// LogValue logs the options without the key.
func (o Options) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%+v", o)) }

// A Client calls the API of one server. It is safe for concurrent use.
type Client struct {
	o    Options // without the key
	http http.Client
	// key returns the key. Nothing that prints a Client can print what a function returns.
	key func() string
	// feedLogger is the Logger of FollowOutcomes.
	feedLogger *slog.Logger
}

// New returns a client, or an error if the options are invalid. It sends no request.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	isHTTP := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if !isHTTP || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("client: URL must have the form http://host:port or https://host:port")
	}
	if o.Key == "" {
		return nil, errors.New("client: Key is empty")
	}
	o.URL = strings.TrimRight(o.URL, "/")
	key := o.Key
	o.Key = ""
	c := &Client{o: o, key: func() string { return key }, feedLogger: o.Logger}
	if o.HTTPClient != nil {
		c.http = *o.HTTPClient
	} else if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		own := standard.Clone()
		own.MaxIdleConnsPerHost = own.MaxIdleConns // with the standard two, most requests would dial
		c.http.Transport = own
	}
	if c.o.Timeout <= 0 {
		c.o.Timeout = defaultTimeout
		if c.http.Timeout > 0 {
			c.o.Timeout = c.http.Timeout
		}
	}
	c.http.Timeout = 0 // a context limits each try, because some calls have more time
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if o.Retries == 0 {
		c.o.Retries = defaultRetries
	}
	if o.UserAgent == "" {
		c.o.UserAgent = "dispatcher-go"
	}
	if o.MaxAnswer <= 0 {
		c.o.MaxAnswer = defaultMaxAnswer
	}
	if o.Logger == nil {
		c.o.Logger, c.feedLogger = slog.New(slog.DiscardHandler), slog.Default()
	}
	return c, nil
}

// CloseIdleConnections closes the connections that no call uses. A program that creates clients again and
// again should call it when it is done with one. The client can still be used.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

type headersKey struct{}

// WithHeader returns a context whose requests have a header. It replaces a header of the same name that the
// context has already, and none that the client sets.
func WithHeader(ctx context.Context, name, value string) context.Context {
	h := headersOf(ctx).Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set(name, value)
	return context.WithValue(ctx, headersKey{}, h)
}

// headersOf returns the headers of WithHeader, which must not be changed.
func headersOf(ctx context.Context) http.Header {
	h, _ := ctx.Value(headersKey{}).(http.Header)
	return h
}

// An Answer is a complete response with a 2xx status.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Call sends any request, once, and decodes the response into out, unless out is nil. The path begins with
// /v1 and is already escaped. The body is AppendJSON of in; nil: no body. It is for calls of a newer server;
// the other methods are typed.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) (Answer, error) {
	r, err := c.request(method, path, in)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return a, err
	}
	return a, c.decode(a, out)
}

// decode decodes a response into out, unless out is nil.
func (c *Client) decode(a Answer, out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return fmt.Errorf("the response of %s is not from a dispatcher: %w", c.o.URL, err)
	}
	return nil
}

// pathOf returns the path /v1/WORDS. Each word is escaped.
func pathOf(words ...string) string {
	path := "/v1"
	for _, word := range words {
		path += "/" + url.PathEscape(word)
	}
	return path
}

// call sends a request once and decodes the response into a T.
func call[T any](ctx context.Context, c *Client, method string, in any, words ...string) (out T, err error) {
	_, err = c.Call(ctx, method, pathOf(words...), in, &out)
	return out, err
}

// long is call for a request that the server may take 15 minutes to answer.
func long[T any](ctx context.Context, c *Client, method string, in any, words ...string) (out T, err error) {
	r, err := c.request(method, pathOf(words...), in)
	if err != nil {
		return out, err
	}
	r.timeout = longTimeout
	a, err := c.send(ctx, r)
	if err != nil {
		return out, err
	}
	return out, c.decode(a, &out)
}

// read sends a GET request with a query, if necessary several times, and decodes the response into a T.
func read[T any](ctx context.Context, c *Client, q url.Values, words ...string) (out T, err error) {
	a, err := c.get(ctx, 0, q, words...)
	if err != nil {
		return out, err
	}
	return out, c.decode(a, &out)
}

// get sends a GET request, if necessary several times. The server may take as long as more says in addition.
func (c *Client) get(
	ctx context.Context, more time.Duration, q url.Values, words ...string,
) (Answer, error) {
	path := pathOf(words...)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	r, err := c.request(http.MethodGet, path, nil)
	if err != nil {
		return Answer{}, err
	}
	r.timeout += more
	return c.sendAgain(ctx, r)
}

// accept sends a POST request with an idempotency key, if necessary several times. A *NoAnswerError has the
// key.
func accept[T any](ctx context.Context, c *Client, key string, in any, words ...string) (out T, err error) {
	r, err := c.request(http.MethodPost, pathOf(words...), in)
	if err != nil {
		return out, err
	}
	a, err := c.sendAgain(ctx, r)
	if err == nil {
		err = c.decode(a, &out)
	}
	if lost, ok := errors.AsType[*NoAnswerError](err); ok {
		lost.IdempotencyKey = key
	} else if Ambiguous(err) {
		err = &NoAnswerError{Err: err, IdempotencyKey: key}
	}
	return out, err
}

// params are query parameters. An empty value is not sent.
type params map[string]string

// query returns the parameters that have a value.
func (p params) query() url.Values {
	q := url.Values{}
	for name, value := range p {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}
