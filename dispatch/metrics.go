package dispatch

import (
	"cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// metrics are the engine's counters. Names are dispatcher_<noun>_<unit>; labels are closed sets.
type metrics struct {
	registerer prometheus.Registerer

	accepted       prometheus.Counter
	enqueueDropped prometheus.Counter
	claims         prometheus.Counter
	leases         prometheus.Counter
	reaped         prometheus.Counter
	quarantined    prometheus.Counter
	wakes          *prometheus.CounterVec
	refused        *prometheus.CounterVec
	diverted       *prometheus.CounterVec
	attempts       *prometheus.CounterVec
	attemptTime    prometheus.Histogram
	lateness       prometheus.Histogram
	stale          prometheus.Counter
	terminal       *prometheus.CounterVec
	settlements    *prometheus.CounterVec
	indexErrors    *prometheus.CounterVec
	healed         prometheus.Counter
	repaired       prometheus.Counter
	rebuilds       prometheus.Counter
	rollbacks      prometheus.Counter
	takenBack      prometheus.Counter
	sweeps         prometheus.Counter
	catchUps       prometheus.Counter
	crashed        prometheus.Counter
	loaded         prometheus.Counter
	adopted        prometheus.Counter
	clockJumps     prometheus.Counter
	purged         *prometheus.CounterVec
	overdue        *prometheus.GaugeVec
	uncounted      prometheus.Counter
	firings        *prometheus.CounterVec
	firingLateness prometheus.Histogram
	unreadable     prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{registerer: r}
	counter := func(name, help string) prometheus.Counter {
		return add(r, prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatcher_" + name, Help: help}))
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return add(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatcher_" + name, Help: help}, labels))
	}
	histogram := func(name, help string) prometheus.Histogram {
		return add(r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "dispatcher_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 14),
		}))
	}
	m.accepted = counter("callbacks_accepted_total", "Callbacks committed to SQL.")
	m.enqueueDropped = counter("enqueues_dropped_total", "Accepted callbacks left to the sweep because the index was too slow.")
	m.claims = counter("claims_total", "Claims that returned at least one lease.")
	m.leases = counter("leases_total", "Leases that claims returned.")
	m.reaped = counter("leases_reaped_total", "Leases that ran out.")
	m.quarantined = counter("index_records_quarantined_total", "Index records that could not be decoded and were set aside.")
	m.wakes = vec("wakes_total", "What ended a claimer's sleep.", "cause")
	m.refused = vec("stamps_refused_total", "Claims that SQL refused, by what became of them.", "result")
	m.diverted = vec("diverts_total", "Callbacks put back uncharged.", "reason")
	m.attempts = vec("attempts_total", "Ended attempts.", "class", "outcome")
	m.attemptTime = histogram("attempt_seconds", "Time of an attempt, from its start to its end.")
	m.lateness = histogram("attempt_lateness_seconds", "Start of an attempt after its due time.")
	m.stale = counter("results_stale_total", "Results that came after their claim was lost, and had no effect.")
	m.terminal = vec("callbacks_terminal_total", "Callbacks that became terminal.", "state", "reason")
	m.settlements = vec("settlements_total", "Settlements by outcome and what the index said.", "outcome", "result")
	m.indexErrors = vec("index_failures_total", "Operations of the index that failed, as the engine met them.", "operation")
	m.healed = counter("sweep_healed_total", "Overdue callbacks that the sweep gave back to the index.")
	m.repaired = counter("audit_repaired_total", "Records of the index that an audit mended.")
	m.rollbacks = counter("index_rollbacks_total", "Times that a shard of the index was found in an older state than it had been in.")
	m.rebuilds = counter("rebuilds_total", "Rebuilds of the index by this process.")
	m.takenBack = counter("stamps_taken_back_total", "Claims that were taken back because nobody knew whether their stamp was written.")
	m.sweeps = counter("sweeps_total", "Sweeps that ran to their end in this process.")
	m.catchUps = counter("index_catchups_total", "Times that the index was told, once it answered again, what it had missed.")
	m.crashed = counter("attempts_crashed_total", "Attempts recorded as crashed at the next claim: theirs had ended without a result.")
	m.adopted = counter("claims_adopted_total", "Attempts in flight that a rebuild put back into the index.")
	m.clockJumps = counter("clock_jumps_total", "Times that the index's clock differed by more than 5 s from what this process expected.")
	m.loaded = counter("horizon_loaded_total", "Callbacks that this process gave to the index when they came within the horizon.")
	m.uncounted = counter("activity_uncounted_total", "Counts that had no room in the activity by lane: too many lanes in a few seconds, or SQL away for long.")
	m.firings = vec("schedule_firings_total", "Due times of schedules that this process was first with, by what became of them.", "result")
	m.unreadable = counter("unreadable_secrets_total",
		"Times that a stored secret or credential could not be decrypted with this process's master keys.")
	m.firingLateness = histogram("schedule_lateness_seconds", "When a schedule's callback was made, after its due time.")
	m.purged = vec("purged_total", "What retention removed.", "what")
	m.overdue = add(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dispatcher_retention_overdue_seconds",
		Help: "For how long the oldest row that retention should have removed has outstayed it. 0: none has.",
	}, []string{"what"}))
	for _, c := range store.Classes {
		outcome := store.AttemptFailed
		if c == store.ClassOK {
			outcome = store.AttemptSucceeded
		}
		m.attempts.WithLabelValues(string(c), string(outcome))
	}
	return m
}

// add registers c if there is a registerer. A name that is taken is a mistake of the wiring: two engines on one registry.
func add[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r != nil {
		r.MustRegister(c)
	}
	return c
}

// watch adds gauges that are read when they are scraped.
func (m *metrics) watch(e *Engine) {
	gauge := func(name, help string, f func() float64) {
		add(m.registerer, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatcher_" + name, Help: help}, f))
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge("attempts_in_flight", "Attempts being made by this process.", func() float64 { return float64(e.slots.onWire()) })
	gauge("slots_in_use", "Callbacks that this process has claimed or is attempting.", func() float64 { return float64(e.slots.inUse()) })
	gauge("results_waiting", "Results that are not committed yet.", func() float64 { return float64(len(e.settler.results)) })
	gauge("enqueues_waiting", "Accepted callbacks that the index was not told of yet.", func() float64 { return float64(len(e.enqueue.items)) })
	gauge("sql_down", "1 while SQL does not commit.", func() float64 { return truth(e.trouble.sqlDown.Load()) })
	gauge("index_down", "1 while the index does not answer.", func() float64 { return truth(e.trouble.indexDown.Load()) })
	gauge("index_generation", "Generation of the index that this process works with.", func() float64 { return float64(e.keeper.get().Generation) })
	gauge("horizon_lag_seconds", "By how much less than the horizon the index is loaded ahead; a quarter of the horizon is usual. 0 without one.", e.loader.lag)
	gauge("clock_offset_seconds", "The index's clock less this process's.", func() float64 { return e.clock.offset().Seconds() })
}

func (m *metrics) claimed(c *schedule.Claimed) {
	if len(c.Leases) > 0 {
		m.claims.Inc()
		m.leases.Add(float64(len(c.Leases)))
	}
	m.reaped.Add(float64(c.Reaped))
	m.quarantined.Add(float64(c.Quarantined))
}

func (m *metrics) settled(o schedule.Outcome, s schedule.Settled) {
	m.settlements.WithLabelValues(outcomeNames[o], settledNames[s]).Inc()
}

var (
	outcomeNames = [...]string{"", "ack", "reschedule", "divert", "bury"}
	settledNames = [...]string{"", "applied", "stale", "gone"}
)

// ended counts a result that SQL has answered.
func (m *metrics) ended(b *ended, c *store.Committed) {
	if a := b.result.Attempt; a != nil {
		m.attempts.WithLabelValues(string(a.Class), string(a.Outcome)).Inc()
		m.attemptTime.Observe(a.Timings.Total / 1000)
		m.lateness.Observe(max(a.Lateness, 0) / 1000)
	}
	if !c.Won {
		m.stale.Inc()
		return
	}
	if b.result.Diverts > 0 {
		m.diverted.WithLabelValues(cmp.Or(b.putBack, string(b.class))).Add(float64(b.result.Diverts))
	}
	if c.State.Terminal() {
		m.terminal.WithLabelValues(string(c.State), string(c.Reason)).Inc()
	}
}
