package report

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

type metrics struct {
	accepted  prometheus.Counter
	terminal  *prometheus.CounterVec
	uncounted prometheus.Counter
}

func newMetrics(p part.Metrics) *metrics {
	return &metrics{
		accepted: p.Counter("callbacks_accepted_total", "Callbacks committed to SQL."),
		terminal: p.CounterVec("callbacks_terminal_total", "Callbacks that became terminal.", "state",
			"reason"),
		uncounted: p.Counter("activity_uncounted_total",
			"Counts that had no room in the activity by lane: too many lanes in a few seconds, or SQL away for long."),
	}
}

// Counts are what has happened by this process's hand. Its methods say what has, and may be called from many
// goroutines.
type Counts struct {
	activity  *activityBook
	endpoints *healthBook
	metrics   *metrics
}

// NewCounts returns counts that are all zero.
func NewCounts(p part.Metrics) *Counts {
	return &Counts{activity: newActivityBook(), endpoints: newHealthBook(), metrics: newMetrics(p)}
}

// Accepted counts callbacks that SQL has taken, unless they are replays.
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

// Spawned counts a callback that the store has made by itself.
func (c *Counts) Spawned(r *store.OpenRow, now int64) {
	c.activity.write(func(pen *activityPen) { pen.write(r.Project, r.LaneID, now, countAccepted) })
	c.metrics.accepted.Inc()
}

// Ended counts callbacks that became terminal without a result.
func (c *Counts) Ended(n int, state store.State, reason store.Reason) {
	c.metrics.terminal.WithLabelValues(string(state), string(reason)).Add(float64(n))
}

// Expired counts callbacks that ended without being claimed.
func (c *Counts) Expired(rows []store.OpenRow, now int64) {
	c.activity.write(func(pen *activityPen) {
		for i := range rows {
			pen.write(rows[i].Project, rows[i].LaneID, now, countDead)
		}
	})
	c.Ended(len(rows), store.Dead, store.Expired)
}

// Settled counts results that SQL has answered, each in its place.
func (c *Counts) Settled(results []store.Result, committed []store.Committed, now int64) {
	c.activity.settled(results, committed, now)
	for i := range results {
		k := &committed[i]
		if k.Err != nil || !k.Won {
			continue
		}
		c.endpoints.note(&results[i])
		if k.State.Terminal() {
			c.Ended(1, k.State, k.Reason)
		}
	}
}

// Crashed counts an attempt that ended without a result, as the next claim of its callback has found.
func (c *Counts) Crashed(w *store.Stamped, now int64) {
	c.activity.write(func(pen *activityPen) { pen.write(w.Project, w.LaneID, now, countUnknown) })
}
