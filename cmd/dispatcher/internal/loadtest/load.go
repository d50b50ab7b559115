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

// A generator hands callbacks over to the server, and writes into the receiver's ledger when.
type generator struct {
	cl *remote.Client
	r  *benchReceiver
	// form is a submission but for its address and its due time.
	form []byte
	// connections is how many requests are under way at once.
	connections int
	// accepted counts the callbacks that were; refused, the requests that the server was too busy for and
	// that were made again.
	accepted, refused atomic.Int64
	clock             serverClock
}

// requestLimit bounds one request of a run, and how long one that the server is too busy for is made again.
const requestLimit = 30 * time.Second

// newGenerator returns a generator with as many connections of its own, which it keeps.
func newGenerator(cl *remote.Client, r *benchReceiver, p *benchPlan) (*generator, error) {
	only1 := new(http.Protocols)
	only1.SetHTTP1(true) // one connection of HTTP/2 would carry all of them
	cl.HTTP.Timeout = requestLimit
	cl.HTTP.Transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, Protocols: only1, TLSHandshakeTimeout: 10 * time.Second,
		MaxConnsPerHost: p.Concurrency, MaxIdleConns: p.Concurrency, MaxIdleConnsPerHost: p.Concurrency,
		IdleConnTimeout: 90 * time.Second,
	}
	form, err := json.Marshal(map[string]any{
		"topic": "dispatcher.bench", "ref": p.run, "lane": p.run, "payload": json.RawMessage(r.body),
		// A run is over in minutes: what fails is tried again soon, and not for a day.
		"policy": map[string]any{"tiers": []string{"1s", "2s", "5s"},
			"timeout": schedule.FormatDuration(max(15*time.Second, p.delay+10*time.Second))},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the form of a callback: %w", err)
	}
	return &generator{cl: cl, r: r, form: form, connections: p.Concurrency}, nil
}

// submission appends one callback as the API takes it; a due time is the server's.
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

// A load is a span of callbacks, and how it is handed over.
type load struct {
	span
	// batch is how many go in one request; zero and one: each goes by itself.
	batch int
	// connections is how many requests are under way at once; zero: as many as the generator has.
	connections int
	// due returns when a callback is due by the server's clock; nil: at once.
	due func(i int) time.Time
	// start returns when the request of a callback is to start, counted from began; nil: as soon as a
	// connection is free.
	start func(i int) time.Duration
	// until is when the last request may start, counted from began; zero: any time.
	until func(i int) time.Duration
}

// send hands the load over. It returns the times that the requests took. What the ledger has no id of,
// because time ran out or an error ended it, was not accepted.
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

// request hands n callbacks over, from the i-th of the load on, and returns how long that took; zero: it was
// too late for it.
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
	refused, err := patiently(ctx, func() (err error) {
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

// tooBusy says that a request had no effect because the server has too much to do, or cannot commit at
// present.
func tooBusy(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return ok && (refused.Status == http.StatusTooManyRequests ||
		refused.Status == http.StatusServiceUnavailable)
}

// patiently does something again for as long as the server is too busy for it, within the limit of a request.
// It returns how often it was.
func patiently(ctx context.Context, do func() error) (refused int, err error) {
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

// post makes one request and returns the ids of what was accepted. Several submissions each have a comma
// before them.
func (g *generator) post(ctx context.Context, body []byte, n int) ([]string, error) {
	if n == 1 {
		var cb struct {
			ID string `json:"id"`
		}
		if _, err := g.cl.Call(ctx, http.MethodPost, "/v1/callbacks", json.RawMessage(body), &cb); err !=
			nil {
			return nil, fmt.Errorf("hand a callback over: %w", err)
		}
		return []string{cb.ID}, nil
	}
	var answer struct {
		Results []client.CallbackResult `json:"results"`
	}
	batch := append(json.RawMessage(`{"callbacks":[`), body[1:]...)
	if _, err := g.cl.Call(ctx, http.MethodPost, "/v1/callbacks/batch", append(batch, "]}"...),
		&answer); err != nil {
		return nil, fmt.Errorf("hand a batch over: %w", err)
	}
	if len(answer.Results) != n {
		return nil, fmt.Errorf("%s answered %d results for a batch of %d", g.cl.Base, len(answer.Results), n)
	}
	ids := make([]string, n)
	var refused error
	for i, r := range answer.Results {
		switch {
		case r.Status == http.StatusAccepted && r.Callback != nil:
			ids[i] = r.Callback.ID
		case refused != nil:
		case r.Problem != nil:
			refused = fmt.Errorf("a callback of a batch was refused: %s", remote.InLine(r.Problem))
		default:
			refused = fmt.Errorf("a callback of a batch was refused with %d", r.Status)
		}
	}
	return ids, refused
}

// A serverClock is what is known of the server's clock: it is ahead of this machine's by at least low and at
// most high.
type serverClock struct {
	low, high time.Duration
	known     bool
}

// observe takes a callback's creation time, a whole millisecond cut down, which the server read between sent
// and came.
func (s *serverClock) observe(created, sent, came time.Time) {
	low, high := created.Sub(came), created.Add(time.Millisecond).Sub(sent)
	if !s.known {
		*s = serverClock{low, high, true}
		return
	}
	// Two that contradict each other mean that a clock was set meanwhile: then the newer one counts.
	s.low, s.high = max(s.low, low), min(s.high, high)
	if s.low > s.high {
		s.low, s.high = low, high
	}
}

// ahead is by how much the server's clock is ahead, to within precision. Clocks that cannot be told apart are
// one.
func (s *serverClock) ahead() (by, precision time.Duration) {
	if s.low <= 0 && s.high >= 0 {
		return 0, max(-s.low, s.high)
	}
	return (s.low + s.high) / 2, (s.high - s.low) / 2
}
