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
	// repeatAfter is when a state is reported again whose message was given up.
	repeatAfter = 30 * time.Minute
)

// A queued is a message on its way to a sink.
type queued struct {
	message sink.Message
	id      string
	added   time.Time
	tries   int
}

// A report is the last message about a subject. lostAt is when it was given up; zero: it was not.
type report struct {
	queued
	lostAt time.Time
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
	reports map[Subject]*report
	share   Share
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
		log: log, count: count, wake: make(chan struct{}, 1), reports: make(map[Subject]*report),
	}, nil
}

// setShare sets the share of the rate from the next attempt on.
func (p *post) setShare(s Share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.share = s
}

// waits returns how long after its creation a message is sent, and the least time between two attempts.
// Processes that see the same outage send one after the other, and together within the platform's rate.
func (p *post) waits() (first, gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.share.Place) * p.gap, time.Duration(max(p.share.Of, 1)) * p.gap
}

// publish queues the message of a new state.
func (p *post) publish(of Subject, q queued) {
	p.mu.Lock()
	p.reports[of] = &report{queued: q}
	p.mu.Unlock()
	p.add(q)
}

// repeat queues the messages again that were given up repeatAfter ago, if their states last.
func (p *post) repeat(now time.Time) {
	var again []queued
	p.mu.Lock()
	for _, r := range p.reports {
		lasts := r.message.State == sink.Firing
		if lasts && !r.lostAt.IsZero() && now.Sub(r.lostAt) >= repeatAfter {
			r.lostAt, r.message.At = time.Time{}, now
			again = append(again, r.queued)
		}
	}
	p.mu.Unlock()
	for _, q := range again {
		p.add(q)
	}
}

// add queues a message.
func (p *post) add(q queued) {
	q.added = time.Now()
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

// deliver tries a message until it is accepted, refused for good, or expired. It waits for the turn of this
// process, and for the gap of the rate after each attempt.
func (p *post) deliver(ctx context.Context, q *queued) {
	r := p.request
	r.ID = "own-alert-" + q.id
	r.Body, r.ContentType = p.config.Render(q.message)
	first, _ := p.waits()
	pause(ctx, time.Until(q.added.Add(first)))
	for ctx.Err() == nil {
		q.tries++
		r.Number = q.tries
		resp := p.sender.Send(ctx, r)
		wait, again := p.settle(q, &resp)
		if ctx.Err() != nil && again {
			p.log.Warn("alert about this process is not sent: it ends", p.logged(q)...)
			return
		}
		_, gap := p.waits()
		pause(ctx, max(wait, gap))
		if !again {
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
	case time.Now().Add(wait).After(q.added.Add(sink.ExpiresIn)):
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
	p.mu.Lock()
	for _, r := range p.reports {
		if r.id == q.id {
			r.lostAt = time.Now()
		}
	}
	p.mu.Unlock()
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
