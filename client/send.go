package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
)

const (
	// firstWait doubles from try to try, up to longestWait. A Retry-After beyond longestRetryAfter ends a
	// call, so that its caller does not wait.
	firstWait         = 500 * time.Millisecond
	longestWait       = 8 * time.Second
	longestRetryAfter = 30 * time.Second
)

// errTooLong is not temporary: the next response would be as long.
var errTooLong = errors.New("the response is too long")

// A request can be sent several times. Each time it has the same bytes.
type request struct {
	method, path string
	body         []byte // nil: none
	timeout      time.Duration
}

// request encodes a request.
func (c *Client) request(method, path string, in any) (*request, error) {
	r := &request{method: method, path: path, timeout: c.o.Timeout}
	if in == nil {
		return r, nil
	}
	var err error
	if _, whole := in.(json.RawMessage); !whole { // a whole body is the caller's own
		err = checkRaw(reflect.ValueOf(in), "body")
	}
	if err == nil {
		r.body, err = AppendJSON([]byte{}, in)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", noEffect{err})
	}
	return r, nil
}

// send sends a request and reads the whole response. A transport error or an incomplete response is a
// *NoAnswerError, and a status other than 2xx is an *Error.
func (c *Client) send(ctx context.Context, r *request) (Answer, error) {
	if ctx.Err() != nil {
		return Answer{}, &NoAnswerError{Err: ctx.Err(), unsent: true}
	}
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	// why returns the cause of an error: a timeout of this try is not the end of the caller's context.
	why := func(err error) error {
		if limited.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("no complete response within %s: %w", r.timeout, context.DeadlineExceeded)
		}
		return err
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(limited, r.method, c.o.URL+r.path, body)
	if err != nil {
		return Answer{}, fmt.Errorf("create the request: %w", noEffect{err})
	}
	for name, values := range headersOf(ctx) {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+c.key())
	req.Header.Set("User-Agent", c.o.UserAgent)
	if c.o.Project != "" {
		req.Header.Set(ProjectHeader, c.o.Project)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // the message below names the URL
		}
		if _, refused := errors.AsType[*tls.CertificateVerificationError](err); refused {
			return Answer{}, fmt.Errorf("cannot reach %s: %w", c.o.URL, noEffect{err})
		}
		dial, failed := errors.AsType[*net.OpError](err)
		return Answer{}, &NoAnswerError{
			Err: fmt.Errorf("cannot reach %s: %w", c.o.URL, why(err)), unsent: failed && dial.Op == "dial",
		}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, c.o.MaxAnswer+1))
	if err == nil && int64(len(text)) > c.o.MaxAnswer {
		err = fmt.Errorf("%w: more than %d bytes (Options.MaxAnswer)", errTooLong, c.o.MaxAnswer)
	}
	if err != nil {
		return Answer{}, &NoAnswerError{Err: fmt.Errorf("read the response of %s: %w", c.o.URL, why(err))}
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Body: text}
	if a.Status < 200 || a.Status > 299 {
		return Answer{}, problem(a)
	}
	return a, nil
}

// sendAgain sends a request until it has a response that is not temporary, at most 1 + Retries times.
func (c *Client) sendAgain(ctx context.Context, r *request) (a Answer, err error) {
	err = c.again(ctx, r, func() error {
		a, err = c.send(ctx, r)
		return err
	})
	return a, err
}

// again calls try until it returns no temporary error, at most 1 + Retries times. If the effect of an earlier
// try is unknown, it also is after the last one: again then returns a *NoAnswerError.
func (c *Client) again(ctx context.Context, r *request, try func() error) error {
	unknown := false
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		unknown = unknown || r.method != http.MethodGet && Ambiguous(err)
		wait := waitAfter(err, n)
		last := n >= c.o.Retries || !isTemporary(err) || asked(err) > longestRetryAfter ||
			!sleeps(ctx, wait)
		if !last {
			path, _, _ := strings.Cut(r.path, "?")
			c.o.Logger.WarnContext(ctx, "request failed and is sent again", "method", r.method,
				"path", path, "try", n+1, "wait", wait, "error", err)
			if ended := sleep(ctx, wait); ended != nil {
				err, last = fmt.Errorf("%w; the last try: %w", ended, err), true
			}
		}
		switch {
		case last && unknown && !Ambiguous(err):
			return &NoAnswerError{Err: err}
		case last:
			return err
		}
	}
}

// isTemporary reports whether the same request can succeed later.
func isTemporary(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		switch refused.Status {
		case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return refused.Code == string(CodeIdempotencyInProgress)
	}
	_, noAnswer := errors.AsType[*NoAnswerError](err)
	return noAnswer && !errors.Is(err, errTooLong)
}

// asked returns the wait that the server asks for in an error.
func asked(err error) time.Duration {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.RetryAfter
	}
	return 0
}

// waitAfter returns the wait after try n, which counts from zero. A random part of it spreads the requests of
// clients that failed together.
func waitAfter(err error, n int) time.Duration {
	wait := min(firstWait<<min(n, 10), longestWait)
	if least := asked(err); least > 0 {
		return max(wait, least) + mathrand.N(firstWait)
	}
	return wait/2 + mathrand.N(wait/2)
}

// sleeps reports whether the context lasts longer than a wait.
func sleeps(ctx context.Context, wait time.Duration) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() == nil && (!limited || time.Until(deadline) > wait)
}

// sleep returns after a wait, or with the error of the context.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keyed returns the idempotency key of a request: the given one, or a random one. It is empty if the context
// has the header Idempotency-Key.
func keyed(ctx context.Context, given string) string {
	if given != "" || headersOf(ctx).Get("Idempotency-Key") != "" {
		return given
	}
	return rand.Text()
}
