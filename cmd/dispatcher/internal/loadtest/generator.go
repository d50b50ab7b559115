package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// generator submits callbacks to the server and records the times in the receiver's ledger.
type generator struct {
	cl *remote.Client
	r  *benchReceiver
	// form is the JSON of a submission without URL and due time.
	form []byte
	// connections is the number of concurrent requests.
	connections int
	// accepted counts accepted callbacks. refused counts requests that the server was too busy for and that
	// were repeated.
	accepted, refused atomic.Int64
	clock             serverClock
}

// requestLimit is the timeout of one request, and how long a request is repeated while the server is too
// busy.
const requestLimit = 30 * time.Second

// newGenerator returns a generator with its own kept-alive connections.
func newGenerator(cl *remote.Client, r *benchReceiver, p *benchPlan) (*generator, error) {
	http1 := new(http.Protocols)
	http1.SetHTTP1(true) // HTTP/2 would put all requests on one connection
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, Protocols: http1, TLSHandshakeTimeout: 10 * time.Second,
		MaxConnsPerHost: p.Concurrency, MaxIdleConns: p.Concurrency, MaxIdleConnsPerHost: p.Concurrency,
		IdleConnTimeout: 90 * time.Second,
	}
	if err := cl.Use(transport, requestLimit); err != nil {
		return nil, err
	}
	form, err := json.Marshal(map[string]any{
		"topic": "bench", "ref": p.run, "lane": p.run, "payload": json.RawMessage(r.body),
		// A run takes minutes, so failed attempts are retried soon.
		"policy": map[string]any{"tiers": []string{"1s", "2s", "5s"},
			"timeout": schedule.FormatDuration(max(15*time.Second, p.delay+10*time.Second))},
	})
	if err != nil {
		return nil, fmt.Errorf("encode a callback: %w", err)
	}
	return &generator{cl: cl, r: r, form: form, connections: p.Concurrency}, nil
}

// submission appends the JSON of one callback. due is a time of the server's clock; zero: due at once.
func (g *generator) submission(b []byte, number int, due time.Time) []byte {
	b = append(b, `{"url":"`...)
	b = append(b, g.r.path(number)...)
	b = append(b, `",`...)
	if !due.IsZero() {
		b = append(b, `"due_at":"`...)
		b = due.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
		b = append(b, `",`...)
	}
	return append(b, g.form[1:]...)
}

// load is a span of callbacks and how they are submitted.
type load struct {
	span
	// batch is the number of callbacks per request; zero and one: one.
	batch int
	// connections is the number of concurrent requests; zero: all of the generator's.
	connections int
	// due returns the due time of a callback by the server's clock; nil: due at once.
	due func(i int) time.Time
	// start returns when the request of a callback starts, relative to began; nil: as soon as a connection is
	// free.
	start func(i int) time.Duration
	// until is the latest start of the last request, relative to began; nil: no limit.
	until func(i int) time.Duration
}

// send submits the load and returns the durations of the requests. A callback without an id in the ledger was
// not accepted: time ran out, or an error ended the load.
func (g *generator) send(ctx context.Context, l load) ([]time.Duration, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	l.batch = max(l.batch, 1)
	var next atomic.Int64
	var group sync.WaitGroup
	if l.connections == 0 || l.connections > g.connections {
		l.connections = g.connections
	}
	took := make([][]time.Duration, min(l.connections, (l.n+l.batch-1)/l.batch))
	for w := range took {
		group.Go(func() {
			for {
				i := int(next.Add(int64(l.batch))) - l.batch
				if i >= l.n || ctx.Err() != nil {
					return
				}
				d, err := g.request(ctx, &l, i, min(l.batch, l.n-i))
				if err != nil {
					fail(err)
					return
				}
				if d > 0 {
					took[w] = append(took[w], d)
				}
			}
		})
	}
	group.Wait()
	var all []time.Duration
	for _, part := range took {
		all = append(all, part...)
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, nil
}

// request submits n callbacks, starting at the i-th of the load, and returns the duration. Zero means that it
// was too late to start.
func (g *generator) request(ctx context.Context, l *load, i, n int) (time.Duration, error) {
	if l.start != nil {
		console.Pause(ctx, l.start(i)-time.Since(g.r.began))
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	first := l.first + i
	var body []byte
	for k := range n {
		var due time.Time
		if l.due != nil {
			due = l.due(i + k)
		}
		if n > 1 {
			body = append(body, ',')
		}
		body = g.submission(body, first+k, due)
	}
	start := time.Since(g.r.began)
	if l.until != nil && start > l.until(i) {
		return 0, nil
	}
	var ids []string
	refused, err := retryBusy(ctx, func() (err error) {
		ids, err = g.post(ctx, body, n)
		return err
	})
	g.refused.Add(int64(refused))
	end := time.Since(g.r.began)
	for k, id := range ids {
		g.r.ids[first+k], g.r.started[first+k], g.r.accepted[first+k] = id, start, end
		if id != "" {
			g.accepted.Add(1)
		}
	}
	if err != nil && ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return end - start, err
}

// tooBusy reports whether a request had no effect because the server is overloaded or cannot commit now.
func tooBusy(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return ok && (refused.Status == http.StatusTooManyRequests ||
		refused.Status == http.StatusServiceUnavailable)
}

// retryBusy repeats do while the server is too busy, up to requestLimit. It returns the number of refusals.
func retryBusy(ctx context.Context, do func() error) (refused int, err error) {
	for deadline := time.Now().Add(requestLimit); ; refused++ {
		err = do()
		if !tooBusy(err) || time.Now().After(deadline) {
			return refused, err
		}
		wait, _ := remote.Backoff(err, refused)
		console.Pause(ctx, wait)
		if ctx.Err() != nil {
			return refused + 1, ctx.Err()
		}
	}
}

// post makes one request for n submissions and returns the ids of the accepted ones. If n > 1, each
// submission starts with a comma.
func (g *generator) post(ctx context.Context, body []byte, n int) ([]string, error) {
	if n == 1 {
		var cb struct {
			ID string `json:"id"`
		}
		_, err := g.cl.Call(ctx, http.MethodPost, "/v1/callbacks", json.RawMessage(body), &cb)
		if err != nil {
			return nil, fmt.Errorf("submit a callback: %w", err)
		}
		return []string{cb.ID}, nil
	}
	var answer struct {
		Results []client.CallbackResult `json:"results"`
	}
	batch := append(json.RawMessage(`{"callbacks":[`), body[1:]...)
	batch = append(batch, "]}"...)
	if _, err := g.cl.Call(ctx, http.MethodPost, "/v1/callbacks/batch", batch, &answer); err != nil {
		return nil, fmt.Errorf("submit a batch: %w", err)
	}
	if len(answer.Results) != n {
		return nil, fmt.Errorf("%s returned %d results for a batch of %d", g.cl.Base, len(answer.Results), n)
	}
	ids := make([]string, n)
	var refused error
	for i, r := range answer.Results {
		switch {
		case r.Status == http.StatusAccepted && r.Callback != nil:
			ids[i] = r.Callback.ID
		case refused != nil:
		case r.Problem != nil:
			refused = fmt.Errorf("the server refused a callback of a batch: %s", remote.InLine(r.Problem))
		default:
			refused = fmt.Errorf("the server refused a callback of a batch with %d", r.Status)
		}
	}
	return ids, refused
}

// serverClock is an estimate of the server's clock: it is ahead of this machine's clock by low to high.
type serverClock struct {
	low, high time.Duration
	known     bool
}

// observe refines the estimate by a callback. Its creation time, truncated to milliseconds, was read between
// sent and came.
func (s *serverClock) observe(created, sent, came time.Time) {
	low, high := created.Sub(came), created.Add(time.Millisecond).Sub(sent)
	if !s.known {
		*s = serverClock{low, high, true}
		return
	}
	// If the ranges do not overlap, a clock was set in between. Then the newer one counts.
	s.low, s.high = max(s.low, low), min(s.high, high)
	if s.low > s.high {
		s.low, s.high = low, high
	}
}

// ahead returns by how much the server's clock is ahead, and the precision of this estimate. It is zero if
// the clocks may be equal.
func (s *serverClock) ahead() (by, precision time.Duration) {
	if s.low <= 0 && s.high >= 0 {
		return 0, max(-s.low, s.high)
	}
	return (s.low + s.high) / 2, (s.high - s.low) / 2
}
