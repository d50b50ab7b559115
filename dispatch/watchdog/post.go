package watchdog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxQueued bounds the messages that wait for one sink. The oldest is given up for a new one.
	maxQueued = 20
	// firstWait and maxWait bound the backoff, which doubles.
	firstWait = 5 * time.Second
	maxWait   = 2 * time.Minute
)

// A queued is a message on its way to a sink.
type queued struct {
	message sink.Message
	id      string
	expires time.Time
	tries   int
}

// A post delivers messages to one sink, one after another.
type post struct {
	config  sink.Config
	request outbound.Request
	gap     time.Duration // the least time between two attempts, by the platform's rate
	sender  Sender
	log     *slog.Logger
	// count counts a message by its result.
	count func(result string)

	mu      sync.Mutex
	waiting []queued
	// wake has a token after add.
	wake chan struct{}
}

// newPost returns the post of a sink. Its error is that of the sink's secret.
func newPost(c sink.Config, sender Sender, log *slog.Logger, count func(result string)) (*post, error) {
	d := c.Delivery()
	r := outbound.Request{
		URL: d.URL, Method: d.Method, Timeout: d.Policy.Timeout, Success: d.Success, Signer: d.Signer,
	}
	key, err := sign.ParseSecretFor(d.Use, d.Secret)
	if err != nil {
		return nil, err
	}
	r.Secrets = []sign.Secret{{Key: key}}
	return &post{
		config: c, request: r, gap: d.Rate.Per / time.Duration(max(d.Rate.Count, 1)), sender: sender,
		log: log, count: count, wake: make(chan struct{}, 1),
	}, nil
}

// add queues a message.
func (p *post) add(q queued) {
	p.mu.Lock()
	p.waiting = append(p.waiting, q)
	var dropped *queued
	if len(p.waiting) > maxQueued {
		oldest := p.waiting[0]
		dropped, p.waiting = &oldest, p.waiting[1:]
	}
	p.mu.Unlock()
	if dropped != nil {
		p.giveUp(dropped, "too many messages wait")
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take removes the oldest message.
func (p *post) take() (q queued, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return q, false
	}
	q, p.waiting = p.waiting[0], p.waiting[1:]
	return q, true
}

// run delivers messages until ctx ends.
func (p *post) run(ctx context.Context) {
	for {
		q, ok := p.take()
		if !ok {
			select {
			case <-p.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		p.deliver(ctx, &q)
		if ctx.Err() != nil {
			return
		}
	}
}

// deliver tries a message until it is accepted, refused for good, or expired. It waits the gap of the rate
// after each attempt.
func (p *post) deliver(ctx context.Context, q *queued) {
	r := p.request
	r.ID = "own-alert-" + q.id
	r.Body, r.ContentType = p.config.Render(q.message)
	for {
		q.tries++
		r.Number = q.tries
		resp := p.sender.Send(ctx, r)
		wait, again := p.settle(q, &resp)
		if ctx.Err() != nil && again {
			p.log.Warn("alert about this process is not sent: it ends", p.logged(q)...)
			return
		}
		pause(ctx, max(wait, p.gap))
		if !again || ctx.Err() != nil {
			return
		}
	}
}

// settle handles the result of an attempt. It returns whether another one follows, and after which wait.
func (p *post) settle(q *queued, resp *outbound.Response) (wait time.Duration, again bool) {
	if resp.Outcome == store.AttemptSucceeded {
		p.count(resultSent)
		p.log.Info("alert about this process is sent", append(p.logged(q), "attempts", q.tries)...)
		return 0, false
	}
	wait = min(firstWait<<min(q.tries-1, 10), maxWait)
	wait = max(wait, resp.DeferAfter, min(resp.RetryAfter, time.Hour))
	switch {
	case resp.Permanent, resp.Class == store.ClassInvalidRequest:
		p.giveUp(q, "refused for good", classOf(resp)...)
		return 0, false
	case time.Now().Add(wait).After(q.expires):
		p.giveUp(q, "expired", classOf(resp)...)
		return 0, false
	}
	p.log.Warn("alert about this process is not sent yet", append(append(p.logged(q), classOf(resp)...),
		"next_in", wait)...)
	return wait, true
}

// giveUp counts and logs a message that is not delivered.
func (p *post) giveUp(q *queued, why string, attrs ...any) {
	p.count(resultFailed)
	p.log.Error("alert about this process is given up", append(append(p.logged(q), attrs...), "why", why)...)
}

// pause waits until the time is over or ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
