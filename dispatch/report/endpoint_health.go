package report

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// healthEvery is how often endpoint health is written. It serves people and alerts; claims do not read it.
const healthEvery = 5 * time.Second

// maxUnreported bounds the buffered endpoints. Beyond it an attempt of a further endpoint is not reported.
const maxUnreported = 50_000

// A healthBuffer is the health of endpoints by the attempts of this process since the last write.
type healthBuffer struct {
	mu      sync.Mutex
	reports map[string]store.EndpointHealth
	// gone are the projects of endpoints whose receivers responded with 410, by endpoint.
	gone map[string]string
	// wake receives a token when an endpoint is gone, so that it is disabled at once: open callbacks must not
	// be sent there.
	wake chan struct{}
}

func newHealthBuffer() *healthBuffer {
	return &healthBuffer{reports: map[string]store.EndpointHealth{}, gone: map[string]string{},
		wake: make(chan struct{}, 1)}
}

// record adds what a committed result shows about its endpoint.
func (h *healthBuffer) record(r *store.Result) {
	a, w := r.Attempt, r.Stamped
	if a == nil || w == nil || w.EndpointID == "" || !a.Charged {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Reason == store.Gone {
		h.gone[w.EndpointID] = w.Project
		process.Wake(h.wake)
	}
	n, known := h.reports[w.EndpointID]
	if !known && len(h.reports) >= maxUnreported {
		return
	}
	n.ID = w.EndpointID
	switch {
	case a.Outcome == store.AttemptSucceeded,
		w.Kind == store.Poll && a.Class == store.ClassRuleMismatch && !r.Stays:
		// For a poll a response that is not final is a success.
		n.SucceededAt, n.FailedFirst = max(n.SucceededAt, a.EndedAt), 0
		n.Succeeded++
	default:
		n.FailedAt = max(n.FailedAt, a.EndedAt)
		n.Failed++
		if n.FailedFirst == 0 {
			n.FailedFirst = a.EndedAt
		}
	}
	h.reports[w.EndpointID] = n
}

// drain empties the buffer.
func (h *healthBuffer) drain() (reports []store.EndpointHealth, gone map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.reports)) {
		reports = append(reports, h.reports[id])
	}
	gone = h.gone
	h.reports, h.gone = map[string]store.EndpointHealth{}, map[string]string{}
	return reports, gone
}

// restore puts back what could not be written. Of an endpoint with a later report, only the counts.
func (h *healthBuffer) restore(reports []store.EndpointHealth, gone map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range reports {
		if later, ok := h.reports[n.ID]; ok {
			later.Succeeded, later.Failed = later.Succeeded+n.Succeeded, later.Failed+n.Failed
			h.reports[n.ID] = later
		} else if len(h.reports) < maxUnreported {
			h.reports[n.ID] = n
		}
	}
	maps.Copy(h.gone, gone)
}

// RunHealth writes endpoint health until ctx ends.
func (rp *Reporter) RunHealth(ctx context.Context) {
	process.Loop{
		Every: healthEvery, Wake: rp.counts.endpoints.wake, Log: rp.log,
		Failing:   "writing endpoint health failed",
		Recovered: "endpoint health is written again",
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) { return 0, rp.reportHealth(ctx) })
}

// reportHealth writes endpoint health and disables endpoints that are gone. After an error it keeps
// everything that is not written for the next call. What a crash loses, the next attempts report again.
func (rp *Reporter) reportHealth(ctx context.Context) error {
	reports, gone := rp.counts.endpoints.drain()
	if len(gone) > 0 {
		by := store.Actor{Name: "dispatcher", Reason: "the receiver answered 410"}
		for _, id := range slices.Sorted(maps.Keys(gone)) {
			project := gone[id]
			changed, err := rp.o.Store.DisableEndpoint(
				ctx, project, id, string(store.Gone), rp.clock.Now(), by)
			if err != nil {
				rp.counts.endpoints.restore(reports, gone)
				rp.accept.SettingsChanged(ctx)
				return fmt.Errorf("disable endpoint %s that is gone: %w", id, err)
			}
			if changed { // false: it was disabled before, or deleted
				rp.log.Warn("endpoint disabled, its receiver responded with 410",
					"endpoint", store.EndpointPrefix+id, "project", project)
			}
			delete(gone, id)
		}
		rp.accept.SettingsChanged(ctx)
	}
	if len(reports) == 0 {
		return nil
	}
	if err := rp.o.Store.ReportHealth(ctx, reports, rp.clock.Now()); err != nil {
		rp.counts.endpoints.restore(reports, nil)
		return fmt.Errorf("write endpoint health: %w", err)
	}
	return nil
}
