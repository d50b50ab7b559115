package loadtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
)

// A benchReceiver answers everything with 200, and keeps the ledger of one run: when each callback was handed over, when it
// was accepted, and when it arrived. Callbacks are known by their number in the run, which stands at the end of their path.
type benchReceiver struct {
	listener net.Listener
	// base is the address under which the server reaches it; run is the first part of every path.
	base, run string
	body      []byte
	delay     time.Duration

	// Times are counted from began, on this process's monotonic clock.
	began time.Time
	// ids, started and accepted are written by the one who hands the callback over, before others are told; an empty id was
	// not accepted.
	ids               []string
	started, accepted []time.Duration
	// arrived is when each came first, in nanoseconds; zero: not yet.
	arrived []atomic.Int64

	arrivals                   atomic.Int64 // callbacks that came
	repeated, changed, strange atomic.Int64
	// inside is how many requests are being answered, most the most of them since it was last set to zero.
	inside, most atomic.Int64
}

// openBenchReceiver listens. Its ledger has room for the whole plan.
func openBenchReceiver(p *benchPlan) (*benchReceiver, error) {
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for bench's receiver: %w", err)
	}
	n := p.total()
	return &benchReceiver{
		listener: listener, base: console.FirstOf(strings.TrimRight(p.Receiver, "/"), "http://"+listener.Addr().String()), run: p.run, body: BenchBody(p.Size), delay: p.delay,
		began: time.Now(), ids: make([]string, n), started: make([]time.Duration, n), accepted: make([]time.Duration, n), arrived: make([]atomic.Int64, n),
	}, nil
}

// BenchBody is the body of every callback: JSON of exactly so many bytes, at least 16.
func BenchBody(size int) []byte {
	const head, tail = `{"filler":"`, `"}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

// host is the receiver's host as the server's guard sees it.
func (r *benchReceiver) host() string {
	u, err := url.Parse(r.base)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// path is the address of one callback.
func (r *benchReceiver) path(number int) string {
	return r.base + "/" + r.run + "/" + strconv.Itoa(number)
}

// serve answers until ctx ends.
func (r *benchReceiver) serve(ctx context.Context) error {
	return listen.ServeUntilDone(ctx, r.listener, r)
}

// ServeHTTP writes the arrival into the ledger and answers 200, after the delay.
func (r *benchReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Since(r.began)
	now := r.inside.Add(1)
	defer r.inside.Add(-1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
	number, ours := r.number(req.URL.Path)
	body, err := io.ReadAll(io.LimitReader(req.Body, int64(len(r.body))+1))
	switch {
	case err != nil:
		// Whoever broke off comes again; this was no arrival.
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	case !ours:
		r.strange.Add(1)
		http.NotFound(w, req)
		return
	case !bytes.Equal(body, r.body):
		r.changed.Add(1)
	}
	if r.arrived[number].CompareAndSwap(0, int64(at)) {
		r.arrivals.Add(1)
	} else {
		r.repeated.Add(1)
	}
	console.Pause(req.Context(), r.delay)
	w.WriteHeader(http.StatusOK)
}

// number returns the callback that a path is of.
func (r *benchReceiver) number(path string) (int, bool) {
	rest, digits := cutLast(path)
	_, run := cutLast(rest)
	n, err := strconv.Atoi(digits)
	return n, err == nil && run == r.run && n >= 0 && n < len(r.ids)
}

// cutLast cuts a path before its last element.
func cutLast(path string) (before, last string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// A span is callbacks that go together: those numbered from first, so many.
type span struct{ first, n int }

// each calls f for every accepted callback of the span.
func (r *benchReceiver) each(s span, f func(number int)) {
	for i := s.first; i < s.first+s.n; i++ {
		if r.ids[i] != "" {
			f(i)
		}
	}
}

// count is how many of the span were accepted.
func (r *benchReceiver) count(s span) (n int) {
	r.each(s, func(int) { n++ })
	return n
}

// arrivedOf is how many accepted callbacks of the span have arrived.
func (r *benchReceiver) arrivedOf(s span) (n int) {
	r.each(s, func(i int) {
		if r.arrived[i].Load() != 0 {
			n++
		}
	})
	return n
}

// missing returns the numbers of those that were accepted and have not arrived.
func (r *benchReceiver) missing(s span) (numbers []int) {
	r.each(s, func(i int) {
		if r.arrived[i].Load() == 0 {
			numbers = append(numbers, i)
		}
	})
	return numbers
}

// last is when the last one of the span came; zero: none did.
func (r *benchReceiver) last(s span) (last time.Duration) {
	r.each(s, func(i int) { last = max(last, time.Duration(r.arrived[i].Load())) })
	return last
}

// times returns something of every accepted callback of the span that arrived.
func (r *benchReceiver) times(s span, of func(number int, arrived time.Duration) time.Duration) []time.Duration {
	list := make([]time.Duration, 0, s.n)
	r.each(s, func(i int) {
		if at := time.Duration(r.arrived[i].Load()); at != 0 {
			list = append(list, of(i, at))
		}
	})
	return slices.Clip(list)
}

// A benchReport is what bench measured: the object that --json prints, whose fields docs/guide/bench.md explains. Units are in the
// names. What was not measured, or cannot be told on this system, is left out.
type benchReport struct {
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"started_at"`
	TookSeconds float64   `json:"took_seconds"`
	// OK is whether everything that was accepted arrived as it should. Error is what ended the run, or what was wrong.
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
	// RequestStartedLateMs is how much later than the rate asked for requests started: what the generator could not keep up with.
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
	// Accepted = Arrived + GivenUp + Missing. Accepted were answered with 202, Arrived came to the receiver. GivenUp had not
	// come when the run was broken off, and were not waited for. Missing were, in vain; MissingIDs are some of those.
	Accepted   int      `json:"accepted"`
	Arrived    int      `json:"arrived"`
	GivenUp    int      `json:"given_up"`
	Missing    int      `json:"missing"`
	MissingIDs []string `json:"missing_ids,omitempty"`
	// Repeated arrivals are those after a callback's first, Changed ones had other bytes than were handed over, Strange ones
	// were of no callback of this run. Early ones came before they were due.
	Repeated int `json:"repeated"`
	Changed  int `json:"changed"`
	Strange  int `json:"strange"`
	Early    int `json:"early"`
	// RefusedRequests were answered with 429 or 503, and made again.
	RefusedRequests int `json:"refused_requests"`
	// Canceled were open on a running server at the end, and were canceled; OpenLeft are still open, as far as is known.
	Canceled int `json:"canceled"`
	OpenLeft int `json:"open_left"`
	// HistoryCallbacks is how many callbacks stay in the server's history; zero if what they were in is removed.
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

// quantile returns the least of the sorted times that at least the share q of them do not exceed; zero of none.
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
