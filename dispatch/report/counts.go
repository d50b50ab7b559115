package report

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

type metrics struct {
	accepted  prometheus.Counter
	terminal  *prometheus.CounterVec
	uncounted prometheus.Counter
}

func newMetrics(p process.Metrics) *metrics {
	return &metrics{
		accepted: p.Counter("callbacks_accepted_total", "Callbacks committed to SQL."),
		terminal: p.CounterVecOf("callbacks_terminal_total",
			"Callbacks that became terminal, by state and reason. A delivered notification has no reason.",
			[]string{"state", "reason"}, terminalSeries()),
		uncounted: p.Counter("activity_uncounted_total",
			"Events missing in the activity by lane: too many lanes within a few seconds, or a long outage "+
				"of SQL."),
	}
}

// terminalSeries returns the pairs of state and reason.
func terminalSeries() [][]string {
	var pairs [][]string
	for state, reasons := range map[store.State][]store.Reason{
		store.Succeeded: {"", store.PollSucceeded, store.PollFailed, store.ResolvedOutside},
		store.Dead: {store.Exhausted, store.Rejected, store.Gone, store.Expired, store.Blocked, store.Invalid,
			store.Poison, store.Unresolved},
		store.Canceled: {store.Requested, store.Superseded, store.EndpointDeleted},
	} {
		for _, reason := range reasons {
			pairs = append(pairs, []string{string(state), string(reason)})
		}
	}
	return pairs
}

// Counts counts what this process did. It is safe for concurrent use. The engine's parts call it through
// their Observer interfaces, after the commit.
type Counts struct {
	activity  *activityBuffer
	endpoints *healthBuffer
	metrics   *metrics
}

// NewCounts returns Counts that are zero.
func NewCounts(p process.Metrics) *Counts {
	return &Counts{activity: newActivityBuffer(), endpoints: newHealthBuffer(), metrics: newMetrics(p)}
}

// Accepted counts accepted callbacks, without replays.
func (c *Counts) Accepted(list []store.Accepted, now int64) {
	c.activity.accepted(list, now)
	fresh := 0
	for i := range list {
		if a := &list[i]; a.Err == nil && !a.Replayed && a.Callback.State == store.Scheduled {
			fresh++
		}
	}
	c.metrics.accepted.Add(float64(fresh))
}

// Spawned counts a callback that the store created.
func (c *Counts) Spawned(r *store.OpenRow, now int64) {
	c.activity.write(func(w *activityWriter) { w.count(r.Project, r.LaneID, now, countAccepted) })
	c.metrics.accepted.Inc()
}

// Ended counts callbacks that became terminal without a result.
func (c *Counts) Ended(n int, state store.State, reason store.Reason) {
	c.metrics.terminal.WithLabelValues(string(state), string(reason)).Add(float64(n))
}

// Expired counts callbacks that expired before a claim, as what they ended.
func (c *Counts) Expired(rows []store.EndedRow, now int64) {
	c.activity.write(func(w *activityWriter) {
		for i := range rows {
			if r := &rows[i]; r.State == store.Dead {
				w.countDead(r.Project, r.LaneID, now, r.Kind == store.Poll)
			}
		}
	})
	for i := range rows {
		c.Ended(1, rows[i].State, rows[i].Reason)
	}
}

// Settled counts results; committed has the outcome of each, in their order.
func (c *Counts) Settled(results []store.Result, committed []store.Committed, now int64) {
	c.activity.settled(results, committed, now)
	for i := range results {
		k := &committed[i]
		if k.Err != nil || !k.Won {
			continue
		}
		c.endpoints.record(&results[i])
		if k.State.Terminal() {
			c.Ended(1, k.State, k.Reason)
		}
	}
}

// Crashed counts an attempt without a result, which the next claim of its callback finds.
func (c *Counts) Crashed(s *store.Stamped, now int64) {
	c.activity.write(func(w *activityWriter) { w.count(s.Project, s.LaneID, now, countUnknown) })
}
