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

// Client calls the API through package client. Its methods return errors instead of failing the test, so
// goroutines may use them.
type Client struct {
	*client.Client
	Base string
	HTTP *http.Client
}

// NewClient returns a client of the server at base.
func NewClient(base string) *Client { return newClient(base, nil) }

// newClient also counts the accepted callbacks in a; nil: nowhere.
func newClient(base string, a *accounts) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	c := &Client{Base: base, HTTP: &http.Client{Transport: countingTransport{transport, a},
		Timeout: time.Minute}}
	var err error
	// Without retries, a test sees each response.
	c.Client, err = client.New(client.Options{URL: base, Key: AdminKey, HTTPClient: c.HTTP, Retries: -1})
	if err != nil {
		panic(err) // the test built the address
	}
	return c
}

// Submission is the JSON body of a request.
type Submission map[string]any

// Tiers is a policy with these tiers and this timeout of an attempt.
func Tiers(timeout string, tiers ...string) Submission {
	return Submission{"tiers": tiers, "timeout": timeout}
}

// Finals is the success rule of a poll that asks for the state of an order.
func Finals() Submission {
	return Submission{
		"success": []Submission{{"pointer": "/trade_state", "in": []string{"SUCCESS"}}},
		"failure": []Submission{{"pointer": "/trade_state", "in": []string{"CLOSED"}}},
	}
}

// Refusal returns the problem of the server's response; nil if err has none.
func Refusal(err error) *client.Error {
	refusal, _ := errors.AsType[*client.Error](err)
	return refusal
}

// Collect reads all pages of a list.
func Collect[T any](list client.List[T]) (all []T, err error) {
	for row, err := range list.All(context.Background()) {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}

// Accept posts one callback, or one poll if s has a "request".
func (c *Client) Accept(ctx context.Context, s Submission) (cb client.Callback, err error) {
	path := "/v1/callbacks"
	if s["request"] != nil {
		path = "/v1/polls"
	}
	_, err = c.Call(ctx, http.MethodPost, path, s, &cb)
	return cb, err
}

// Submit is Accept with the timeout SubmitTimeout. A replayed response counts as accepted.
func (c *Client) Submit(s Submission) (client.Callback, error) {
	ctx, cancel := context.WithTimeout(context.Background(), SubmitTimeout)
	defer cancel()
	return c.Accept(ctx, s)
}

// AcceptBatch posts up to 1,000 callbacks, and all must be accepted. With idempotency keys it repeats a batch
// that was answered 503, up to 150 times, 200 ms apart. An earlier try may have accepted some of them, so a
// repetition also allows 200.
func (c *Client) AcceptBatch(ctx context.Context, batch []Submission) ([]client.Callback, error) {
	statuses := []int{http.StatusAccepted}
	for try := 0; ; try++ {
		got, err := c.SubmitBatch(ctx, batch, statuses...)
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

// busy says whether the server refused a request because it could not commit.
func busy(err error) bool {
	refusal := Refusal(err)
	return refusal != nil && refusal.Status == http.StatusServiceUnavailable
}

// SubmitBatch posts callbacks, and each must be answered with one of the statuses. Otherwise it returns those
// before the first that was not, and an error.
func (c *Client) SubmitBatch(ctx context.Context, batch []Submission,
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

// ListAll reads every callback that matches the filter.
func (c *Client) ListAll(f client.Filter) ([]client.Callback, error) { return Collect(c.Callbacks(f)) }

// AttemptsOf reads all attempts of a callback, ordered by number.
func (c *Client) AttemptsOf(id string) ([]client.Attempt, error) {
	all, err := Collect(c.Attempts(id))
	slices.Reverse(all)
	return all, err
}
