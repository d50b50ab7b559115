package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

// SendBatch submits at most 1000 callbacks, and returns the result of each at the same index. All valid
// callbacks are one commit. A result with a Problem is not accepted. If that is temporary, SendBatch sends
// these callbacks again.
//
// With an error, the results are those that are known, or nil. A result that has neither a Callback nor a
// Problem is unknown: the server may have accepted that callback. The error is then a *NoAnswerError. Send
// these callbacks again with its IdempotencyKeys.
func (c *Client) SendBatch(ctx context.Context, rs []CallbackRequest) ([]CallbackResult, error) {
	rs = slices.Clone(rs)
	keys := make([]string, len(rs))
	open := make([]int, len(rs)) // the positions that have no lasting result
	for i := range rs {
		open[i] = i
		if rs[i].IdempotencyKey == "" {
			rs[i].IdempotencyKey = keyed(context.Background(), "")
		}
		keys[i] = rs[i].IdempotencyKey
	}
	known := make([]CallbackResult, len(rs))
	unknown := make([]bool, len(rs))
	answered, complete := false, false
	r := &request{method: http.MethodPost, path: pathOf("callbacks", "batch")}
	err := c.again(ctx, r, func() error {
		complete = false
		part := make([]CallbackRequest, len(open))
		for i, at := range open {
			part[i] = rs[at]
		}
		got, err := call[results[CallbackResult]](ctx, c, r.method,
			map[string][]CallbackRequest{"callbacks": part}, "callbacks", "batch")
		if err == nil && len(got.Results) != len(open) {
			err = fmt.Errorf("the response of %s has %d results for %d callbacks", c.o.URL,
				len(got.Results), len(open))
		}
		if err != nil {
			for _, at := range open {
				unknown[at] = unknown[at] || Ambiguous(err)
			}
			return err
		}
		answered, complete = true, true
		var temporary error
		var left []int
		for i, at := range open {
			known[at] = got.Results[i]
			if p := known[at].Problem; p != nil {
				if err := (&Error{Problem: *p}); isTemporary(err) {
					temporary, left = noEffect{err}, append(left, at)
				}
			}
		}
		open = left
		return temporary
	})
	if complete && ctx.Err() == nil {
		err = nil // it is about results, which have it
	}
	if !answered {
		known = nil
	}
	return settle(known, unknown, keys, err)
}

// settle removes the results that are unknown: after a try without a response, a callback may be accepted
// although a later try refuses it. If there are any, the error is a *NoAnswerError.
func settle(known []CallbackResult, unknown []bool, keys []string, err error) ([]CallbackResult, error) {
	lost := false
	for i, is := range unknown {
		if !is || known != nil && known[i].Callback != nil {
			continue
		}
		lost = true
		if known != nil {
			if p := known[i].Problem; p != nil && err == nil {
				err = &Error{Problem: *p}
			}
			known[i] = CallbackResult{}
		}
	}
	if !lost {
		return known, err
	}
	for {
		inner, ok := err.(*NoAnswerError)
		if !ok {
			return known, &NoAnswerError{Err: err, IdempotencyKeys: keys}
		}
		err = inner.Err
	}
}

// results is the response to a batch.
type results[T any] struct {
	Results []T `json:"results"`
}
