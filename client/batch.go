package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

// SendBatch submits at most 1000 callbacks, and returns the result of each at the same index. All valid
// callbacks are one commit. A result with a Problem is not accepted. If that is temporary, SendBatch sends
// these callbacks again. The error is about the whole batch.
func (c *Client) SendBatch(ctx context.Context, rs []CallbackRequest) ([]CallbackResult, error) {
	rs = slices.Clone(rs)
	open := make([]int, len(rs)) // the positions that have no lasting result
	for i := range rs {
		open[i] = i
		if rs[i].IdempotencyKey == "" {
			rs[i].IdempotencyKey = keyed(context.Background(), "")
		}
	}
	known := make([]CallbackResult, len(rs))
	answered := false
	r := &request{method: http.MethodPost, path: pathOf("callbacks", "batch")}
	err := c.again(ctx, r, func() error {
		part := make([]CallbackRequest, len(open))
		for i, at := range open {
			part[i] = rs[at]
		}
		got, err := call[results[CallbackResult]](ctx, c, r.method,
			map[string][]CallbackRequest{"callbacks": part}, "callbacks", "batch")
		if err != nil {
			return err
		}
		if len(got.Results) != len(open) {
			return fmt.Errorf("the response of %s has %d results for %d callbacks", c.o.URL,
				len(got.Results), len(open))
		}
		answered = true
		var temporary error
		var left []int
		for i, at := range open {
			known[at] = got.Results[i]
			if p := known[at].Problem; p != nil {
				if err := (&Error{Problem: *p}); isTemporary(err) {
					temporary, left = err, append(left, at)
				}
			}
		}
		open = left
		return temporary
	})
	if answered {
		return known, nil
	}
	return nil, err
}

// results is the response to a batch.
type results[T any] struct {
	Results []T `json:"results"`
}
