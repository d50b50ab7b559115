package loadtest

import (
	"math"
	"slices"
	"time"
)

// benchReport is the object that --json prints; docs/guide/bench.md explains its fields. The names contain
// the units. A field that was not measured or is unknown on this system is left out.
type benchReport struct {
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"started_at"`
	TookSeconds float64   `json:"took_seconds"`
	// OK: each accepted callback arrived correctly. Error is what failed.
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`

	Run      string        `json:"run"`
	Server   benchedServer `json:"server"`
	Machine  benchMachine  `json:"machine"`
	Settings benchSettings `json:"settings"`
	Phases   benchPhases   `json:"phases"`
	Tally    benchTally    `json:"books"`
	Notes    []string      `json:"notes,omitempty"`
}

// benchedServer is the measured server.
type benchedServer struct {
	URL      string `json:"url"`
	Embedded bool   `json:"embedded"`
	// Database and Index are set for bench's own server.
	Database     string  `json:"database,omitempty"`
	Index        string  `json:"index,omitempty"`
	PeakRSSBytes *uint64 `json:"peak_rss_bytes,omitempty"`
	// ClockAheadMs is the server's clock minus this machine's clock; its precision is ClockPrecisionMs.
	ClockAheadMs     float64 `json:"clock_ahead_ms"`
	ClockPrecisionMs float64 `json:"clock_precision_ms"`
}

// benchMachine is the machine of bench, its receiver, and its own server.
type benchMachine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	Go   string `json:"go"`
	// CPUs is how many CPUs this process may use.
	CPUs int `json:"cpus"`
}

// benchSettings are the flags with their defaults.
type benchSettings struct {
	Phases          []string `json:"phases"`
	Count           int      `json:"count"`
	Concurrency     int      `json:"concurrency"`
	BatchSize       int      `json:"batch_size"`
	RatePerSecond   float64  `json:"rate_per_second"`
	DurationSeconds float64  `json:"duration_seconds"`
	BodyBytes       int      `json:"body_bytes"`
	ReceiverDelayMs float64  `json:"receiver_delay_ms"`
	TimeoutSeconds  float64  `json:"timeout_seconds"`
	ReceiverURL     string   `json:"receiver_url"`
}

// benchPhases are the finished phases.
type benchPhases struct {
	Accept  *acceptFigures  `json:"accept,omitempty"`
	Drain   *drainFigures   `json:"drain,omitempty"`
	Steady  *steadyFigures  `json:"steady,omitempty"`
	Delayed *delayedFigures `json:"delayed,omitempty"`
}

// workFigures are the figures of every phase.
type workFigures struct {
	Callbacks   int     `json:"callbacks"`
	TookSeconds float64 `json:"took_seconds"`
	// CPU time, user and system: of bench's own server, and of this process, which generates and receives.
	ServerCPUSecondsPer1000 *float64 `json:"server_cpu_seconds_per_1000,omitempty"`
	OwnCPUSecondsPer1000    *float64 `json:"own_cpu_seconds_per_1000,omitempty"`
	// Average number of busy CPUs of both during the phase.
	ServerCPUsBusy *float64 `json:"server_cpus_busy,omitempty"`
	OwnCPUsBusy    *float64 `json:"own_cpus_busy,omitempty"`
	// MachineIdleShare is the idle share of all CPUs of this machine, from 0 to 1, with all its programs.
	MachineIdleShare *float64 `json:"machine_idle_share,omitempty"`
}

// acceptFigures: callbacks submitted as fast as the connections allow, none due yet.
type acceptFigures struct {
	workFigures
	AcceptedPerSecond float64   `json:"accepted_per_second"`
	Requests          int       `json:"requests"`
	RequestMs         quantiles `json:"request_ms"`
}

// drainFigures: a backlog with one due time.
type drainFigures struct {
	workFigures
	DeliveredPerSecond float64 `json:"delivered_per_second"`
	MostAtOnce         int     `json:"most_at_once"`
}

// steadyFigures: callbacks submitted at a rate, due at once.
type steadyFigures struct {
	workFigures
	AcceptedPerSecond      float64   `json:"accepted_per_second"`
	RequestMs              quantiles `json:"request_ms"`
	RequestStartToArriveMs quantiles `json:"request_start_to_arrival_ms"`
	AcceptedToArriveMs     quantiles `json:"accepted_to_arrival_ms"`
	// RequestStartedLateMs is how much later requests started than the rate requires: the generator's delay.
	RequestStartedLateMs quantiles `json:"request_started_late_ms"`
}

// delayedFigures: callbacks submitted before, due one after the other.
type delayedFigures struct {
	workFigures
	LatenessMs quantiles `json:"lateness_ms"`
	Early      int       `json:"early"`
}

// benchTally counts the callbacks of the whole run by what happened to them.
type benchTally struct {
	// Accepted = Arrived + GivenUp + Missing. Accepted callbacks got a 202, and Arrived ones came to the
	// receiver. GivenUp ones had not arrived when the run was interrupted. Missing ones did not arrive in
	// time; MissingIDs are some of them.
	Accepted   int      `json:"accepted"`
	Arrived    int      `json:"arrived"`
	GivenUp    int      `json:"given_up"`
	Missing    int      `json:"missing"`
	MissingIDs []string `json:"missing_ids,omitempty"`
	// Repeated counts arrivals after a callback's first, Changed those with another body, and Strange those
	// of no callback of this run. Early counts arrivals before the due time.
	Repeated int `json:"repeated"`
	Changed  int `json:"changed"`
	Strange  int `json:"strange"`
	Early    int `json:"early"`
	// RefusedRequests got 429 or 503 and were repeated.
	RefusedRequests int `json:"refused_requests"`
	// Canceled callbacks were open on a running server at the end. OpenLeft are still open, as far as bench
	// knows.
	Canceled int `json:"canceled"`
	OpenLeft int `json:"open_left"`
	// HistoryCallbacks stay in the history of a running server; zero for bench's own server.
	HistoryCallbacks int `json:"history_callbacks"`
}

// quantiles of times in milliseconds, by nearest rank.
type quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// quantilesOf sorts times and returns their quantiles; all zero if there are none.
func quantilesOf(times []time.Duration) quantiles {
	slices.Sort(times)
	return quantiles{
		P50: millis(quantile(times, 0.5)), P90: millis(quantile(times, 0.9)),
		P99: millis(quantile(times, 0.99)), Max: millis(quantile(times, 1)),
	}
}

// quantile returns the smallest of the sorted times that is not exceeded by at least the share q of them;
// zero if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// The subtraction corrects binary rounding: 0.99 of 100 is slightly above 99.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// millis converts to milliseconds, rounded to microseconds.
func millis(d time.Duration) float64 { return rounded(float64(d)/float64(time.Millisecond), 3) }

// rounded rounds to a number of decimals.
func rounded(x float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(x*p) / p
}

// perSecond is a rate rounded to tenths; zero if d is zero.
func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return rounded(float64(n)/d.Seconds(), 1)
}
