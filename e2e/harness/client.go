package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A client calls the API with package client. Its methods return errors, so that goroutines may use them.
type Client struct {
	*client.Client
	Base string
	HTTP *http.Client
}

// NewClient returns a client of the server at that address.
func NewClient(base string) *Client { return newClient(base, nil) }

// newClient counts what the server says that it has accepted in these accounts; nil: nowhere.
func newClient(base string, a *accounts) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	c := &Client{Base: base, HTTP: &http.Client{Transport: countingTransport{transport, a},
		Timeout: time.Minute}}
	var err error
	c.Client, err = client.New(client.Options{URL: base, Key: AdminKey, HTTPClient: c.HTTP})
	if err != nil {
		panic(err) // the address is a test's own
	}
	return c
}

// A submission is the body of a request, as callers in other languages write it.
type Submission map[string]any

// Tiers is a policy with these tiers, and a timeout for each attempt.
func Tiers(timeout string, tiers ...string) Submission {
	return Submission{"tiers": tiers, "timeout": timeout}
}

// Finals is the rule of an order's poll.
func Finals() Submission {
	return Submission{
		"success": []Submission{{"pointer": "/trade_state", "in": []string{"SUCCESS"}}},
		"failure": []Submission{{"pointer": "/trade_state", "in": []string{"CLOSED"}}},
	}
}

// Refusal is what the server refused a request with; nil: nothing, or it gave no answer.
func Refusal(err error) *client.Error {
	refusal, _ := errors.AsType[*client.Error](err)
	return refusal
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

// Accept posts one callback, or one poll if it has a request.
func (c *Client) Accept(ctx context.Context, s Submission) (cb client.Callback, err error) {
	path := "/v1/callbacks"
	if s["request"] != nil {
		path = "/v1/polls"
	}
	_, err = c.Call(ctx, http.MethodPost, path, s, &cb)
	return cb, err
}

// Ask is Accept for the first time or again: a replay is as good as a first answer.
func (c *Client) Ask(s Submission) (client.Callback, error) {
	ctx, cancel := context.WithTimeout(context.Background(), AskTimeout)
	defer cancel()
	return c.Accept(ctx, s)
}

// AcceptBatch posts up to 1,000 callbacks; every one of them must be accepted, or have been by an earlier try
// whose answer was 503. It gives up after half a minute of those.
func (c *Client) AcceptBatch(ctx context.Context, batch []Submission) ([]client.Callback, error) {
	statuses := []int{http.StatusAccepted}
	for try := 0; ; try++ {
		got, err := c.AskBatch(ctx, batch, statuses...)
		if err == nil || batch[0]["idempotency_key"] == nil || try == 150 || ctx.Err() != nil || !busy(err) {
			return got, err
		}
		statuses = []int{http.StatusAccepted, http.StatusOK}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// busy says whether a request was refused because the server could not commit it.
func busy(err error) bool {
	refusal := Refusal(err)
	return refusal != nil && refusal.Status == http.StatusServiceUnavailable
}

// AskBatch posts callbacks, each of which must be answered with one of the statuses. It returns those before
// the first that was not.
func (c *Client) AskBatch(ctx context.Context, batch []Submission,
	statuses ...int) ([]client.Callback, error) {
	var reply struct{ Results []client.CallbackResult }
	if _, err := c.Call(ctx, http.MethodPost, "/v1/callbacks/batch", Submission{"callbacks": batch},
		&reply); err != nil {
		return nil, err
	}
	if len(reply.Results) != len(batch) {
		return nil, fmt.Errorf("a batch of %d was answered with %d results", len(batch), len(reply.Results))
	}
	accepted := make([]client.Callback, 0, len(batch))
	for i, r := range reply.Results {
		if !slices.Contains(statuses, r.Status) {
			err := error(fmt.Errorf("element %d of the batch was answered %d", i, r.Status))
			if r.Problem != nil {
				err = fmt.Errorf("element %d of the batch: %w", i, &client.Error{Problem: *r.Problem})
			}
			return accepted, err
		}
		accepted = append(accepted, *r.Callback)
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
