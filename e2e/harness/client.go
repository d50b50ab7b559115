package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A client speaks the HTTP API as any caller would: it reads with package client, and hands over what callers in
// other languages may write. Its methods return errors, so that goroutines may use them.
type Client struct {
	*client.Client
	Base, Key string
	HTTP      *http.Client
	// accounts count what it is told was accepted; nil: nothing is counted.
	accounts *accounts
}

// NewClient returns a client of the server at that address.
func NewClient(base string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	c := &Client{Base: base, Key: AdminKey, HTTP: &http.Client{Transport: transport, Timeout: time.Minute}}
	var err error
	if c.Client, err = client.New(client.Options{URL: base, Key: c.Key, HTTPClient: c.HTTP}); err != nil {
		panic(err) // the address is a test's own
	}
	return c
}

// A submission is the body of a request.
type Submission map[string]any

// Tiers is a policy with these tiers, and a timeout for each attempt.
func Tiers(timeout string, tiers ...string) Submission {
	if tiers == nil {
		tiers = []string{}
	}
	return Submission{"tiers": tiers, "timeout": timeout}
}

// AskAfter is the policy of a poll with these tiers.
func AskAfter(tiers ...string) Submission { return Tiers("1s", tiers...) }

// Finals is the rule of an order's poll.
func Finals() Submission {
	return Submission{
		"success": []Submission{{"pointer": "/trade_state", "in": []string{"SUCCESS"}}},
		"failure": []Submission{{"pointer": "/trade_state", "in": []string{"CLOSED"}}},
	}
}

// An answer is the whole of an HTTP answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a Answer) Decode(into any) error {
	if err := json.Unmarshal(a.Body, into); err != nil {
		return fmt.Errorf("answer %d is not the JSON expected: %w: %.300s", a.Status, err, a.Body)
	}
	return nil
}

// Raw sends bytes as they are.
func (c *Client) Raw(ctx context.Context, method, path string, body []byte, header http.Header) (Answer,
	error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	whole := Answer{Status: resp.StatusCode, Header: resp.Header, Body: got}
	c.accounts.answered(method, path, whole)
	return whole, nil
}

// Send sends JSON, or nothing if in is nil, and takes any answer.
func (c *Client) Send(ctx context.Context, method, path string, in any) (Answer, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return Answer{}, err
		}
	}
	return c.Raw(ctx, method, path, body, nil)
}

// Call is Send whose answer must have one of the wanted statuses, and is decoded into out unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any, want ...int) error {
	got, err := c.Send(ctx, method, path, in)
	if err != nil {
		return err
	}
	if !slices.Contains(want, got.Status) {
		return fmt.Errorf("%s %s answered %d, want %d: %.500s", method, path, got.Status, want, got.Body)
	}
	if out == nil {
		return nil
	}
	return got.Decode(out)
}

// Read is a GET that is answered 200.
func (c *Client) Read(ctx context.Context, path string, out any) error {
	return c.Call(ctx, http.MethodGet, path, nil, out, http.StatusOK)
}

// Collect reads a list to its end.
func Collect[T any](list client.List[T]) (all []T, err error) {
	for row, err := range list.All(context.Background()) {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}

// Accept posts one callback, which must be new.
func (c *Client) Accept(ctx context.Context, s Submission) (cb client.Callback, err error) {
	err = c.Call(ctx, http.MethodPost, "/v1/callbacks", s, &cb, http.StatusAccepted)
	return cb, err
}

// AcceptPoll posts one poll, which must be new.
func (c *Client) AcceptPoll(ctx context.Context, s Submission) (cb client.Callback, err error) {
	err = c.Call(ctx, http.MethodPost, "/v1/polls", s, &cb, http.StatusAccepted)
	return cb, err
}

// Ask posts a callback or a poll, for the first time or again: a replay is as good as a first answer.
func (c *Client) Ask(path string, s Submission) (cb client.Callback, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), AskTimeout)
	defer cancel()
	err = c.Call(ctx, http.MethodPost, path, s, &cb, http.StatusAccepted, http.StatusOK)
	if err == nil && cb.ID == "" {
		err = errors.New("the answer has no id")
	}
	return cb, err
}

// AcceptBatch posts up to 1,000 callbacks; every one of them must be accepted, or have been by an earlier try
// whose answer was 503. It gives up after half a minute of those.
func (c *Client) AcceptBatch(ctx context.Context, batch []Submission) ([]client.Callback, error) {
	got, err := c.AskBatch(ctx, batch, http.StatusAccepted)
	keyed := batch[0]["idempotency_key"] != nil
	for try := 0; try < 150 && keyed && err != nil && ctx.Err() == nil &&
		strings.Contains(err.Error(), "answered 503"); try++ {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		got, err = c.AskBatch(ctx, batch, http.StatusAccepted, http.StatusOK)
	}
	return got, err
}

// AskBatch posts callbacks, each of which must be answered with one of the statuses. It returns those before
// the first that was not.
func (c *Client) AskBatch(ctx context.Context, batch []Submission, statuses ...int) ([]client.Callback, error) {
	var reply struct {
		Results []struct {
			Status   int             `json:"status"`
			Callback client.Callback `json:"callback"`
			Problem  json.RawMessage `json:"problem"`
		} `json:"results"`
	}
	err := c.Call(ctx, http.MethodPost, "/v1/callbacks/batch", Submission{"callbacks": batch}, &reply,
		http.StatusMultiStatus)
	if err != nil {
		return nil, err
	}
	if len(reply.Results) != len(batch) {
		return nil, fmt.Errorf("a batch of %d was answered with %d results", len(batch), len(reply.Results))
	}
	accepted := make([]client.Callback, 0, len(batch))
	for i, r := range reply.Results {
		if !slices.Contains(statuses, r.Status) {
			return accepted, fmt.Errorf("element %d of the batch was answered %d: %s", i, r.Status, r.Problem)
		}
		accepted = append(accepted, r.Callback)
	}
	return accepted, nil
}

// ListAll reads every callback that the filter picks.
func (c *Client) ListAll(f client.Filter) ([]client.Callback, error) { return Collect(c.Callbacks(f)) }

// AttemptsOf reads every attempt of one callback, by number.
func (c *Client) AttemptsOf(id string) ([]client.Attempt, error) {
	all, err := Collect(c.Attempts(id))
	slices.Reverse(all)
	return all, err
}

// RunsOf reads what a schedule has made, the oldest first.
func (c *Client) RunsOf(id string) ([]client.ScheduleRun, error) {
	runs, err := c.ScheduleRuns(context.Background(), id)
	slices.Reverse(runs)
	return runs, err
}
