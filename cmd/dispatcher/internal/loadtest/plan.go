package loadtest

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// BenchCommand measures a server.
type BenchCommand struct {
	Server  string `group:"A running server:" placeholder:"URL" help:"URL of the server to measure. Default: bench starts its own server. DISPATCHER_SERVER is ignored."`
	Key     string `group:"A running server:" placeholder:"KEY" help:"API key for --server (better in DISPATCHER_KEY, or as for the other commands)."`
	DataDir string `group:"A running server:" placeholder:"DIR" help:"Data directory of a server on this machine, to read its admin key. Default: ./dispatcher-data."`
	Yes     bool   `help:"Continue even if the server or the database already has callbacks."`

	DatabaseURL string `group:"Bench's own server:" placeholder:"URL" help:"PostgreSQL to use, in a new schema that is dropped at the end. Default: SQLite in a temporary directory."`
	RedisURL    string `group:"Bench's own server:" placeholder:"URL" help:"Redis for the index, with a new prefix whose keys are removed at the end. Default: the embedded index."`
	TempDir     string `group:"Bench's own server:" placeholder:"DIR" help:"Parent of the temporary directory. It decides which disk is measured. Default: the system's."`

	Phases      []string `default:"accept,drain,steady,delayed" placeholder:"PHASE" help:"Phases to measure. Default: accept,drain,steady,delayed."`
	Count       *int     `short:"n" placeholder:"N" help:"Callbacks of accept and drain. Default: 10000; with --server 1000."`
	Concurrency int      `default:"64" placeholder:"N" help:"Connections that submit callbacks; bench's own server also sends this many at once. Default: 64."`
	Batch       int      `default:"1" placeholder:"N" help:"Callbacks per request in accept. Default: 1."`
	Rate        string   `placeholder:"N/s" help:"Rate of steady and delayed. Default: 500/s; with --server 100/s."`
	Duration    string   `default:"10s" placeholder:"DURATION" help:"Length of steady; delayed takes half of it. Default: 10s."`
	Size        int      `default:"512" placeholder:"BYTES" help:"Size of a body. Default: 512."`

	Listen   string `default:"127.0.0.1:0" group:"The receiver:" placeholder:"ADDR" help:"Address on which bench receives. Default: a free port of 127.0.0.1."`
	Receiver string `group:"The receiver:" placeholder:"URL" help:"URL under which the server reaches --listen, if it differs."`
	Delay    string `default:"0s" group:"The receiver:" placeholder:"DURATION" help:"Delay of each response. Default: 0s."`

	Timeout string `default:"30s" placeholder:"DURATION" help:"Missing callbacks count as lost if nothing arrives for this long. Default: 30s."`
	JSON    bool   `help:"Print one JSON object; docs/guide/bench.md explains its fields."`
}

// Help is the text below the summary of bench --help.
func (*BenchCommand) Help() string {
	return "accept: submit callbacks that are not due yet as fast as the connections allow. " +
		"drain: send a backlog that falls due at one time. " +
		"steady: submit callbacks at a rate; they are sent at once. " +
		"delayed: callbacks fall due one after the other; none may arrive early.\n\n" +
		"All callbacks go to a receiver in bench, in a new lane (bench-…) with the lane's name as ref. " +
		"Each accepted callback must arrive: if one is missing, early or changed, the exit code is 1.\n\n" +
		"On a running server the callbacks stay in the history, but none stays open. A server that already " +
		"has callbacks is measured only with --yes. " +
		"The server must be allowed to send to the receiver (egress_allow).\n\n" +
		"After Ctrl-C bench cancels its open callbacks and removes everything that it created."
}

// Run measures and prints the report. The exit code is 1 if an accepted callback did not arrive correctly.
func (cmd *BenchCommand) Run(ctx context.Context, c *console.Console) error {
	plan, err := cmd.plan(time.Now())
	if err != nil {
		return err
	}
	b := newBench(c, plan)
	err = b.run(ctx)
	if _, wrong := errors.AsType[*console.UsageError](err); wrong {
		return err
	}
	b.report.TookSeconds = rounded(time.Since(b.report.StartedAt).Seconds(), 3)
	switch {
	case err == nil:
		b.report.OK = true
	case errors.Is(err, context.Canceled):
		b.report.Error = "interrupted"
	default:
		b.report.Error = err.Error()
	}
	printed := b.print(cmd.JSON)
	if err == nil {
		err = printed
	}
	return err
}

// benchPlan has the checked and parsed flags.
type benchPlan struct {
	*BenchCommand
	// run is the name of this run: the lane and the ref of its callbacks, and part of the names of what it
	// creates.
	run                      string
	phases                   []string
	count                    int
	rate                     float64
	duration, delay, timeout time.Duration
}

// Phases in their order.
const (
	acceptPhase  = "accept"
	drainPhase   = "drain"
	steadyPhase  = "steady"
	delayedPhase = "delayed"
)

// Limits of a run. They follow from the memory of one process, the limits of the API, and the timeout of the
// receiver's responses.
const (
	maxBenchCount       = 1_000_000
	maxBenchServerCount = 100_000
	maxBenchConcurrency = 4096
	maxBenchRate        = 100_000
	minBenchSize        = 16
	maxBenchSize        = 256 << 10
	maxBenchBatch       = 1000
	maxBenchRequest     = 12 << 20
	maxBenchDelay       = 45 * time.Second
)

// plan checks and parses the flags.
func (cmd *BenchCommand) plan(now time.Time) (*benchPlan, error) {
	p := &benchPlan{
		BenchCommand: cmd, count: 10_000, rate: 500,
		run: "bench-" + now.UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:4]),
	}
	if cmd.Server != "" {
		p.count, p.rate = 1000, 100
	}
	if cmd.Count != nil {
		p.count = *cmd.Count
	}
	wrong := &console.UsageError{}
	p.checkPhases(wrong.Add)
	p.checkNumbers(wrong.Add)
	p.checkCombinations(wrong.Add)
	if len(wrong.Lines) > 0 {
		return nil, wrong
	}
	return p, nil
}

// checkPhases checks the phases and sorts them.
func (p *benchPlan) checkPhases(refuse func(string, ...any)) {
	all := []string{acceptPhase, drainPhase, steadyPhase, delayedPhase}
	for _, written := range p.Phases {
		name := strings.TrimSpace(written)
		if !slices.Contains(all, name) {
			refuse("--phases: %q is not one of %s", name, strings.Join(all, ", "))
		}
		p.phases = append(p.phases, name)
	}
	p.phases = slices.DeleteFunc(all, func(name string) bool { return !p.has(name) })
	if len(p.phases) == 0 && len(p.Phases) == 0 {
		refuse("--phases: name at least one of accept, drain, steady and delayed")
	}
}

// checkNumbers parses and limits all numbers and durations.
func (p *benchPlan) checkNumbers(refuse func(string, ...any)) {
	most := maxBenchCount
	if p.Server != "" {
		most = maxBenchServerCount // limits the searches in a lane of a server in use
	}
	between := func(flag string, value, least, most int) {
		if value < least || value > most {
			refuse("--%s: %d is not between %d and %d", flag, value, least, most)
		}
	}
	between("count", p.count, 1, most)
	between("concurrency", p.Concurrency, 1, maxBenchConcurrency)
	between("batch", p.Batch, 1, maxBenchBatch)
	between("size", p.Size, minBenchSize, maxBenchSize)
	if p.Batch*(p.Size+600) > maxBenchRequest {
		refuse("--batch: %d bodies of %d bytes do not fit into one request", p.Batch, p.Size)
	}
	if rate, err := remote.ParseRate(p.Rate); err != nil {
		refuse("--rate: %s", err)
	} else if rate > 0 {
		p.rate = rate
	}
	length := func(flag, written string, least, most time.Duration) time.Duration {
		d, err := schedule.ParseDuration(written)
		if err != nil || d < least || d > most {
			refuse("--%s: %q is not a duration from %s to %s", flag, written, schedule.FormatDuration(least),
				schedule.FormatDuration(most))
		}
		return d
	}
	p.duration = length("duration", p.Duration, time.Second, time.Hour)
	p.delay = length("delay", p.Delay, 0, maxBenchDelay)
	p.timeout = length("timeout", p.Timeout, time.Second, time.Hour)
	if p.delay >= p.timeout {
		refuse("--timeout: %s is not longer than --delay", schedule.FormatDuration(p.timeout))
	}
	if p.rate > maxBenchRate || p.steady() > most || p.steady() < 1 {
		refuse("--rate: %g per second for %s is not between 1 and %d callbacks", p.rate,
			schedule.FormatDuration(p.duration), most)
	}
}

// checkCombinations checks flags that need or exclude each other, and addresses.
func (p *benchPlan) checkCombinations(refuse func(string, ...any)) {
	needs := func(flag string, missing bool, what string) {
		if missing {
			refuse("--%s needs %s", flag, what)
		}
	}
	running := p.Server != ""
	for _, own := range []struct{ flag, value string }{
		{"database-url", p.DatabaseURL}, {"redis-url", p.RedisURL}, {"temp-dir", p.TempDir},
	} {
		if running && own.value != "" {
			refuse("--%s and --server exclude each other", own.flag)
		}
	}
	needs("key", !running && p.Key != "", "--server")
	needs("data-dir", !running && p.DataDir != "", "--server")
	needs("receiver", p.Receiver != "" && p.Listen == "127.0.0.1:0", "--listen, the address that it leads to")
	if err := config.CheckAddress(p.Listen); err != nil {
		refuse("--listen: %s", err)
	} else if host, _, _ := net.SplitHostPort(p.Listen); p.Receiver == "" &&
		(host == "" || net.ParseIP(host).IsUnspecified()) {
		refuse("--listen %s needs --receiver, the URL under which the server reaches it", p.Listen)
	}
	if u, err := url.Parse(p.Receiver); p.Receiver != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != "") {
		refuse("--receiver is not a URL such as http://host:port")
	}
	if strings.HasPrefix(p.DatabaseURL, "sqlite:") {
		refuse("--database-url: leave it out for SQLite; --temp-dir chooses its disk")
	}
}

// interval is the time between the first and the i-th callback of steady or delayed.
func (p *benchPlan) interval(i int) time.Duration {
	return time.Duration(i) * time.Duration(float64(time.Second)/p.rate)
}

// has reports whether the plan has a phase.
func (p *benchPlan) has(phase string) bool { return slices.Contains(p.phases, phase) }

// steady and delayed are the numbers of callbacks of these phases. warm is that of the warm-up after the
// probes.
func (p *benchPlan) steady() int  { return int(p.rate * p.duration.Seconds()) }
func (p *benchPlan) delayed() int { return max(1, p.steady()/2) }
func (p *benchPlan) warm() int    { return min(max(p.count/5, 1), 1000) }

// probes is how many callbacks are submitted first, one after the other.
const probes = 10

// total is the maximum number of callbacks of the plan.
func (p *benchPlan) total() int {
	n := probes + p.warm()
	if p.has(acceptPhase) || p.has(drainPhase) {
		n += p.count
	}
	if p.has(steadyPhase) {
		n += p.steady()
	}
	if p.has(delayedPhase) {
		n += p.delayed()
	}
	return n
}

// settings returns the plan for the report.
func (p *benchPlan) settings() benchSettings {
	return benchSettings{
		Phases: p.phases, Count: p.count, Concurrency: p.Concurrency, BatchSize: p.Batch,
		RatePerSecond:   p.rate,
		DurationSeconds: p.duration.Seconds(), BodyBytes: p.Size, ReceiverDelayMs: millis(p.delay),
		TimeoutSeconds: p.timeout.Seconds(),
	}
}

// newBench returns a run that has not started.
func newBench(c *console.Console, p *benchPlan) *bench {
	return &bench{c: c, plan: p, report: benchReport{
		Version: c.Version, StartedAt: time.Now().UTC().Truncate(time.Millisecond), Run: p.run,
		Settings: p.settings(),
		Machine: benchMachine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
			CPUs: runtime.GOMAXPROCS(0)},
	}}
}
