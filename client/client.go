// Package client is the Go client of a dispatcher. It also has the request and response types of the API,
// version 1.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8080", Key: key})
//	cb, err := c.AcceptCallback(ctx, client.CallbackRequest{
//		URL: "https://shop.example/notify", Topic: "payment.succeeded", Ref: "order-1",
//		Payload: json.RawMessage(`{"paid":10000}`), IdempotencyKey: "order-1/paid",
//	})
//
// The client has one method per operation and one file per resource. Every call takes a context, reads a
// bounded response and follows no redirect. An error response of the server is an *Error. A call without a
// complete response is a *NoAnswerError: the request may or may not have had an effect. The client never
// repeats a request. A caller that repeats one should set an IdempotencyKey.
//
// The server reads and writes the same types. In a response, the zero value of a field with the tag
// api:"null" is null in JSON. In a request, a field that is left out or null is not given. Where null has its
// own meaning, the field is an Optional. The tags named schema are the constraints in the OpenAPI document.
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
	// ProjectHeader names the project of a request. Only the admin key of the settings may choose a project.
	ProjectHeader = "Dispatcher-Project"
	// MaskedHeader says which part of a payload is masked.
	MaskedHeader = "Dispatcher-Masked"

	defaultMaxAnswer = 64 << 20
)

// Options configure a Client.
type Options struct {
	// URL is the server's URL: scheme, host and, behind a proxy, the path before /v1. Required.
	URL string
	// Key is the API key. Required.
	Key string
	// Project is sent with every request. Empty: the key's own project.
	Project string
	// HTTPClient sends the requests. Nil: a client that has no timeout and follows no redirect. A redirect
	// would send the key to another host.
	HTTPClient *http.Client
	// UserAgent is sent with every request. Empty: dispatcher-go.
	UserAgent string
	// MaxAnswer is the maximum size of a response in bytes. Zero: 64 MiB. A longer response is an error.
	MaxAnswer int64
}

// A Client calls the API of one server. It is safe for concurrent use.
type Client struct{ o Options }

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

// An Answer is a complete response with a 2xx status.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Call sends any request and decodes the response into out, unless out is nil. The path begins with /v1 and
// is already escaped. The body is AppendJSON of in; nil: no body. The other methods of the client are
// shortcuts for it.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) (Answer, error) {
	a, err := c.send(ctx, method, path, in)
	if err != nil || out == nil {
		return a, err
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return a, fmt.Errorf("the response of %s is not from a dispatcher: %w", c.o.URL, err)
	}
	return a, nil
}

// send sends a request and reads the whole response. A transport error or an incomplete response is a
// *NoAnswerError, and a status other than 2xx is an *Error.
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
		return Answer{}, fmt.Errorf("create the request: %w", err)
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
			err = outer.Err // the message below names the URL
		}
		return Answer{}, &NoAnswerError{fmt.Errorf("cannot reach %s: %w", c.o.URL, err)}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, c.o.MaxAnswer+1))
	if err == nil && int64(len(text)) > c.o.MaxAnswer {
		err = fmt.Errorf("longer than %d MiB", c.o.MaxAnswer>>20)
	}
	if err != nil {
		return Answer{}, &NoAnswerError{fmt.Errorf("read the response of %s: %w", c.o.URL, err)}
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Body: text}
	if a.Status < 200 || a.Status > 299 {
		return Answer{}, problem(a)
	}
	return a, nil
}

// pathOf returns the path /v1/WORDS. Each word is escaped.
func pathOf(words ...string) string {
	path := "/v1"
	for _, word := range words {
		path += "/" + url.PathEscape(word)
	}
	return path
}

// call sends a request and decodes the response into a T.
func call[T any](ctx context.Context, c *Client, method string, in any, words ...string) (out T, err error) {
	_, err = c.Call(ctx, method, pathOf(words...), in, &out)
	return out, err
}

// read sends a GET request with a query and decodes the response into a T.
func read[T any](ctx context.Context, c *Client, q url.Values, words ...string) (out T, err error) {
	path := pathOf(words...)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	_, err = c.Call(ctx, "GET", path, nil, &out)
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
