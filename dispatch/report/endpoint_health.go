package report

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// healthEvery is how often what attempts said of endpoints is written: it is for people and alerts, not for
// the claim.
const healthEvery = 5 * time.Second

// maxUnreported bounds the endpoints that wait to be reported. Beyond it the news of further ones is lost
// until their next attempt.
const maxUnreported = 50_000

// A healthBook is what attempts of this process said of endpoints since it was last written.
type healthBook struct {
	mu   sync.Mutex
	news map[string]store.EndpointHealth
	// gone are endpoints whose receivers said so (410), by their project.
	gone map[string]string
	// wake says that one is gone: what is still open for it must not be sent there.
	wake chan struct{}
}

func newHealthBook() *healthBook {
	return &healthBook{news: map[string]store.EndpointHealth{}, gone: map[string]string{},
		wake: make(chan struct{}, 1)}
}

// note takes over what a committed result says of its endpoint.
func (h *healthBook) note(r *store.Result) {
	a, w := r.Attempt, r.Stamped
	if a == nil || w == nil || w.EndpointID == "" || !a.Charged {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Reason == store.Gone {
		h.gone[w.EndpointID] = w.Project
		part.Wake(h.wake)
	}
	n, known := h.news[w.EndpointID]
	if !known && len(h.news) >= maxUnreported {
		return
	}
	n.ID = w.EndpointID
	switch {
	case a.Outcome == store.AttemptSucceeded,
		w.Kind == store.Poll && a.Class == store.ClassRuleMismatch && !r.Stays:
		// Of a poll "not final yet" is an answer as good as any.
		n.SucceededAt, n.FailedFirst = max(n.SucceededAt, a.EndedAt), 0
	default:
		n.FailedAt = max(n.FailedAt, a.EndedAt)
		if n.FailedFirst == 0 {
			n.FailedFirst = a.EndedAt
		}
	}
	h.news[w.EndpointID] = n
}

// take empties the book.
func (h *healthBook) take() (news []store.EndpointHealth, gone map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.news)) {
		news = append(news, h.news[id])
	}
	gone = h.gone
	h.news, h.gone = map[string]store.EndpointHealth{}, map[string]string{}
	return news, gone
}

// restore puts back what could not be written, unless there are later news of it.
func (h *healthBook) restore(news []store.EndpointHealth, gone map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range news {
		if _, later := h.news[n.ID]; !later && len(h.news) < maxUnreported {
			h.news[n.ID] = n
		}
	}
	maps.Copy(h.gone, gone)
}

// RunHealth writes what attempts said of endpoints until ctx ends.
func (rp *Reporter) RunHealth(ctx context.Context) {
	part.Loop{
		Every: healthEvery, Wake: rp.counts.endpoints.wake, Log: rp.log,
		Failing:   "the health of endpoints cannot be written",
		Recovered: "the health of endpoints is written again",
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) { return 0, rp.reportHealth(ctx) })
}

// reportHealth writes what attempts said of endpoints, and disables those that are gone. What could not be
// written is said again by their next attempts.
func (rp *Reporter) reportHealth(ctx context.Context) error {
	news, gone := rp.counts.endpoints.take()
	if len(gone) > 0 {
		by := store.Actor{Name: "dispatcher", Reason: "the receiver answered 410"}
		for _, id := range slices.Sorted(maps.Keys(gone)) {
			project := gone[id]
			is, err := rp.o.Store.DisableEndpoint(ctx, project, id, string(store.Gone), rp.clock.Now(), by)
			if err != nil {
				rp.counts.endpoints.restore(news, gone)
				rp.accept.SettingsChanged(ctx)
				return fmt.Errorf("disable endpoint %s that is gone: %w", id, err)
			}
			if is { // else it was disabled by another, or deleted
				rp.log.Warn("an endpoint is disabled: its receiver answered 410",
					"endpoint", store.EndpointPrefix+id, "project", project)
			}
			delete(gone, id)
		}
		rp.accept.SettingsChanged(ctx)
	}
	if len(news) == 0 {
		return nil
	}
	if err := rp.o.Store.ReportHealth(ctx, news, rp.clock.Now()); err != nil {
		rp.counts.endpoints.restore(news, nil)
		return fmt.Errorf("report the health of endpoints: %w", err)
	}
	return nil
}
