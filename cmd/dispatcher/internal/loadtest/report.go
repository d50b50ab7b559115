package loadtest

import (
	"math"
	"slices"
	"time"
)

// A benchReport is what bench measured: the object that --json prints, whose fields docs/guide/bench.md
// explains. Units are in the names. What was not measured, or cannot be told on this system, is left out.
type benchReport struct {
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"started_at"`
	TookSeconds float64   `json:"took_seconds"`
	// OK is whether everything that was accepted arrived as it should. Error is what ended the run, or what
	// was wrong.
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`

	Run      string        `json:"run"`
	Server   benchedServer `json:"server"`
	Machine  benchMachine  `json:"machine"`
	Settings benchSettings `json:"settings"`
	Phases   benchPhases   `json:"phases"`
	Books    benchBooks    `json:"books"`
	Notes    []string      `json:"notes,omitempty"`
}

// A benchedServer is the server that was measured.
type benchedServer struct {
	URL      string `json:"url"`
	Embedded bool   `json:"embedded"`
	// Database and Index are known of an embedded server.
	Database     string  `json:"database,omitempty"`
	Index        string  `json:"index,omitempty"`
	PeakRSSBytes *uint64 `json:"peak_rss_bytes,omitempty"`
	// ClockAheadMs is the server's clock less this machine's, to within ClockPrecisionMs.
	ClockAheadMs     float64 `json:"clock_ahead_ms"`
	ClockPrecisionMs float64 `json:"clock_precision_ms"`
}

// A benchMachine is where bench ran: generator, receiver, and an embedded server.
type benchMachine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	Go   string `json:"go"`
	// CPUs is how many may be used.
	CPUs int `json:"cpus"`
}

// benchSettings are the command line's, with the defaults filled in.
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

// benchPhases are the phases that came to their end.
type benchPhases struct {
	Accept  *acceptFigures  `json:"accept,omitempty"`
	Drain   *drainFigures   `json:"drain,omitempty"`
	Steady  *steadyFigures  `json:"steady,omitempty"`
	Delayed *delayedFigures `json:"delayed,omitempty"`
}

// workFigures are what every phase has.
type workFigures struct {
	Callbacks   int     `json:"callbacks"`
	TookSeconds float64 `json:"took_seconds"`
	// CPU time, user and system: of an embedded server, and of this process, which generates and receives.
	ServerCPUSecondsPer1000 *float64 `json:"server_cpu_seconds_per_1000,omitempty"`
	OwnCPUSecondsPer1000    *float64 `json:"own_cpu_seconds_per_1000,omitempty"`
	// How many CPUs both kept busy on average while the phase took its time.
	ServerCPUsBusy *float64 `json:"server_cpus_busy,omitempty"`
	OwnCPUsBusy    *float64 `json:"own_cpus_busy,omitempty"`
	// MachineIdleShare is how idle all CPUs of this machine were meanwhile, from 0 to 1, whoever used them.
	MachineIdleShare *float64 `json:"machine_idle_share,omitempty"`
}

// acceptFigures: callbacks handed over as fast as the connections allow, none due yet.
type acceptFigures struct {
	workFigures
	AcceptedPerSecond float64   `json:"accepted_per_second"`
	Requests          int       `json:"requests"`
	RequestMs         quantiles `json:"request_ms"`
}

// drainFigures: a backlog that is due at one time.
type drainFigures struct {
	workFigures
	DeliveredPerSecond float64 `json:"delivered_per_second"`
	MostAtOnce         int     `json:"most_at_once"`
}

// steadyFigures: callbacks handed over at a rate, due at once.
type steadyFigures struct {
	workFigures
	AcceptedPerSecond      float64   `json:"accepted_per_second"`
	RequestMs              quantiles `json:"request_ms"`
	RequestStartToArriveMs quantiles `json:"request_start_to_arrival_ms"`
	AcceptedToArriveMs     quantiles `json:"accepted_to_arrival_ms"`
	// RequestStartedLateMs is how much later than the rate asked for requests started: what the generator
	// could not keep up with.
	RequestStartedLateMs quantiles `json:"request_started_late_ms"`
}

// delayedFigures: callbacks handed over beforehand, due one after the other.
type delayedFigures struct {
	workFigures
	LatenessMs quantiles `json:"lateness_ms"`
	Early      int       `json:"early"`
}

// benchBooks are the books of the whole run: they must balance.
type benchBooks struct {
	// Accepted = Arrived + GivenUp + Missing. Accepted were answered with 202, Arrived came to the receiver.
	// GivenUp had not come when the run was broken off, and were not waited for. Missing were, in vain;
	// MissingIDs are some of those.
	Accepted   int      `json:"accepted"`
	Arrived    int      `json:"arrived"`
	GivenUp    int      `json:"given_up"`
	Missing    int      `json:"missing"`
	MissingIDs []string `json:"missing_ids,omitempty"`
	// Repeated arrivals are those after a callback's first, Changed ones had other bytes than were handed
	// over, Strange ones were of no callback of this run. Early ones came before they were due.
	Repeated int `json:"repeated"`
	Changed  int `json:"changed"`
	Strange  int `json:"strange"`
	Early    int `json:"early"`
	// RefusedRequests were answered with 429 or 503, and made again.
	RefusedRequests int `json:"refused_requests"`
	// Canceled were open on a running server at the end, and were canceled; OpenLeft are still open, as far
	// as is known.
	Canceled int `json:"canceled"`
	OpenLeft int `json:"open_left"`
	// HistoryCallbacks is how many callbacks stay in the server's history; zero if what they were in is
	// removed.
	HistoryCallbacks int `json:"history_callbacks"`
}

// quantiles are of times in milliseconds, by nearest rank.
type quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// quantilesOf sorts the times. Of none, all are zero.
func quantilesOf(times []time.Duration) quantiles {
	slices.Sort(times)
	return quantiles{
		P50: millis(quantile(times, 0.5)), P90: millis(quantile(times, 0.9)),
		P99: millis(quantile(times, 0.99)), Max: millis(quantile(times, 1)),
	}
}

// quantile returns the least of the sorted times that at least the share q of them do not exceed; zero of
// none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// Without the little that is taken off, 0.99 of 100 would be a hair above 99 in binary.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// millis is a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return rounded(float64(d)/float64(time.Millisecond), 3) }

// rounded rounds to so many decimals.
func rounded(x float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(x*p) / p
}

// perSecond is a rate, to the tenth; zero if no time passed.
func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return rounded(float64(n)/d.Seconds(), 1)
}
