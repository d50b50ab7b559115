// Package client is the Go client of a dispatcher, and the request and response types of its API, version
// 1.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8080", Key: key})
//	cb, err := c.AcceptCallback(ctx, client.CallbackRequest{
//		URL: "https://shop.example/notify", Topic: "payment.succeeded", Ref: "order-1",
//		Payload: json.RawMessage(`{"paid":10000}`), IdempotencyKey: "order-1/paid",
//	})
//
// There is one method for each operation, in one file for each noun. Every call takes a context, reads a
// bounded
// answer and follows no redirect. What the server refuses is an *Error. A call that got no whole answer is
// a
// *NoAnswerError: then it is unknown whether the request had an effect. The client never sends a request
// again:
// a caller that does so gives an IdempotencyKey.
//
// The server reads and writes the same types. In a response the zero value of a field that is tagged
// api:"null" is
// null in JSON. In a request a field that is left out, or null, is not given; where null has a meaning of
// its own
// the field is an Optional. Tags named schema are the constraints that the OpenAPI document shows.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const (
	// ProjectHeader names the project that a request is for. Only the admin key of the settings may choose
	// one.
	ProjectHeader = "Dispatcher-Project"
	// MaskedHeader says what of a payload is masked.
	MaskedHeader = "Dispatcher-Masked"

	defaultMaxAnswer = 64 << 20
)

// Options say which server a client talks to, and as whom.
type Options struct {
	// URL is the server's address: scheme, host and, behind a proxy, the path before /v1. It is needed.
	URL string
	// Key is the API key. It is needed.
	Key string
	// Project is named in every request; empty: the key's own.
	Project string
	// HTTPClient sends the requests; nil: one without a time-out of its own that follows no redirect. A
	// redirect would carry the key to another address.
	HTTPClient *http.Client
	// UserAgent is sent with every request; empty: dispatcher-go.
	UserAgent string
	// MaxAnswer is the most bytes of an answer that are read; zero: 64 MiB. A longer one is an error.
	MaxAnswer int64
}

// A Client calls the API of one server. It may be used by several goroutines at once.
type Client struct{ o Options }

// New returns a client, or what is wrong with the options. It calls nothing.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	isHTTP := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if !isHTTP || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("client: URL is not an address of the form http://host:port")
	}
	if o.Key == "" {
		return nil, errors.New("client: Key is empty")
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if o.UserAgent == "" {
		o.UserAgent = "dispatcher-go"
	}
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	return &Client{o}, nil
}

// An Answer is a whole answer of the server whose status is 2xx.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Call makes any request and decodes the answer into out, unless that is nil. The path begins with /v1 and
// is
// escaped already. The request's body is AppendJSON of in; nil: none. Other methods of the client are
// short for it.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) (Answer, error) {
	a, err := c.send(ctx, method, path, in)
	if err != nil || out == nil {
		return a, err
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return a, fmt.Errorf("%s did not answer like a dispatcher: %w", c.o.URL, err)
	}
	return a, nil
}

func (c *Client) send(ctx context.Context, method, path string, in any) (Answer, error) {
	var body io.Reader
	if in != nil {
		text, err := AppendJSON(nil, in)
		if err != nil {
			return Answer{}, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.o.URL+path, body)
	if err != nil {
		return Answer{}, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.o.Key)
	req.Header.Set("User-Agent", c.o.UserAgent)
	if c.o.Project != "" {
		req.Header.Set(ProjectHeader, c.o.Project)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.o.HTTPClient.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // the address is in the sentence already
		}
		return Answer{}, &NoAnswerError{fmt.Errorf("cannot reach %s: %w", c.o.URL, err)}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, c.o.MaxAnswer+1))
	if err == nil && int64(len(text)) > c.o.MaxAnswer {
		err = fmt.Errorf("it is longer than %d MiB", c.o.MaxAnswer>>20)
	}
	if err != nil {
		return Answer{}, &NoAnswerError{fmt.Errorf("read the answer of %s: %w", c.o.URL, err)}
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Body: text}
	if a.Status < 200 || a.Status > 299 {
		return Answer{}, problem(a)
	}
	return a, nil
}

// pathOf is the path of the words that follow /v1, each of them escaped.
func pathOf(words ...string) string {
	path := "/v1"
	for _, word := range words {
		path += "/" + url.PathEscape(word)
	}
	return path
}

// call is Call with an answer of a known type.
func call[T any](ctx context.Context, c *Client, method string, in any, words ...string) (out T, err error) {
	_, err = c.Call(ctx, method, pathOf(words...), in, &out)
	return out, err
}

// read is call for what is read, with a query.
func read[T any](ctx context.Context, c *Client, q url.Values, words ...string) (out T, err error) {
	path := pathOf(words...)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	_, err = c.Call(ctx, "GET", path, nil, &out)
	return out, err
}

// params are the parameters of a query; one that is empty is not given.
type params map[string]string

func (p params) query() url.Values {
	q := url.Values{}
	for name, value := range p {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}
