package attempt

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

type metrics struct {
	claims      prometheus.Counter
	leases      prometheus.Counter
	reaped      prometheus.Counter
	quarantined prometheus.Counter
	wakes       *prometheus.CounterVec
	refused     *prometheus.CounterVec
	diverted    *prometheus.CounterVec
	attempts    *prometheus.CounterVec
	attemptTime prometheus.Histogram
	lateness    prometheus.Histogram
	stale       prometheus.Counter
	undone      prometheus.Counter
	crashed     prometheus.Counter
}

func newMetrics(p process.Metrics) *metrics {
	m := new(metrics)
	m.claims = p.Counter("claims_total", "Claims that returned at least one lease.")
	m.leases = p.Counter("leases_total", "Leases that claims returned.")
	m.reaped = p.Counter("leases_reaped_total", "Leases that expired, as claims found them.")
	m.quarantined = p.Counter("index_records_quarantined_total",
		"Index records that could not be decoded and were quarantined.")
	m.wakes = p.CounterVec("wakes_total", "How often claimers woke up, by cause.", "cause",
		schedule.ByTimer.String(), schedule.ByHint.String(), schedule.ByPoll.String(),
		schedule.ByEnd.String())
	m.refused = p.CounterVec("stamps_refused_total", "Claims that SQL refused, by result.", "result",
		refusedParked, refusedDropped, refusedBehind, refusedCorrupt)
	m.diverted = p.CounterVec("diverts_total",
		"Callbacks postponed without counting an attempt, by reason.", "reason", divertReasons...)
	m.attempts = p.CounterVecOf("attempts_total", "Ended attempts, by class and outcome.",
		[]string{"class", "outcome"}, attemptSeries())
	m.attemptTime = p.Histogram("attempt_duration_seconds", "Duration of an attempt.")
	m.lateness = p.Histogram("attempt_lateness_seconds",
		"Time from the due time of an attempt to its start.")
	m.stale = p.Counter("results_stale_total",
		"Results without effect: their claim was lost before they were committed.")
	m.undone = p.Counter("stamps_taken_back_total",
		"Claims that were undone because the reply to their stamp was lost.")
	m.crashed = p.Counter("attempts_crashed_total",
		"Attempts whose claim ended without a result; the next claim records them as crashed.")
	return m
}

// The reasons for which a callback is postponed before its attempt. After an attempt, the reason is the class
// of the attempt.
const (
	divertLockConflict   = "lock_conflict"
	divertLockLost       = "lock_lost"
	divertClaimOld       = "claim_old"
	divertLaneStopped    = "lane_stopped"
	divertEndpointUnread = "endpoint_unread"
)

// divertReasons lists all reasons: those above, and the classes that decide postpones without counting them.
var divertReasons = []string{
	divertLockConflict, divertLockLost, divertClaimOld, divertLaneStopped, divertEndpointUnread,
	string(store.ClassSignError), string(store.ClassLocalInfra), string(store.ClassInterrupted),
	string(store.ClassReceiverBusy),
}

// The replies of SQL to a claim that it refuses.
const (
	refusedParked  = "parked"
	refusedDropped = "dropped"
	refusedBehind  = "behind"
	refusedCorrupt = "corrupt"
)

// attemptSeries returns the pairs of class and outcome. Only an attempt of class ok succeeds.
func attemptSeries() [][]string {
	var pairs [][]string
	for _, c := range store.Classes {
		if c == store.ClassOK {
			pairs = append(pairs, []string{string(c), string(store.AttemptSucceeded)})
			continue
		}
		for _, outcome := range []store.AttemptOutcome{store.AttemptFailed, store.AttemptUnknown} {
			pairs = append(pairs, []string{string(c), string(outcome)})
		}
	}
	return pairs
}

// claimed counts the reply to a claim: the claim itself only if it has leases, and always what the claim
// reaped and quarantined.
func (m *metrics) claimed(c *schedule.Claimed) {
	if len(c.Leases) > 0 {
		m.claims.Inc()
		m.leases.Add(float64(len(c.Leases)))
	}
	m.reaped.Add(float64(c.Reaped))
	m.quarantined.Add(float64(c.Quarantined))
}

// ended counts a result after SQL's reply to it.
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
}

// watch adds gauges that are read at each scrape.
func (rn *Runner) watch(p process.Metrics) {
	p.Gauge("attempts_in_flight", "Attempts that this process is making.", func() float64 {
		return float64(rn.slots.runningAttempts())
	})
	p.Gauge("slots", "Attempts that this process may make at the same time; 0 if it never sends.",
		func() float64 {
			if rn.o.NoWorker {
				return 0
			}
			return float64(rn.o.Workers)
		})
	p.Gauge("slots_in_use", "Callbacks that this process has claimed or is attempting.", func() float64 {
		return float64(rn.slots.inUse())
	})
	p.Gauge("results_waiting", "Results that are not committed yet.", func() float64 {
		return float64(len(rn.settler.results))
	})
}
