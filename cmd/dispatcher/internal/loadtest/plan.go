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
	Server  string `group:"A running server:" placeholder:"URL" help:"Measure the server at this address. Default: one that bench starts for itself; DISPATCHER_SERVER does not count here."`
	Key     string `group:"A running server:" placeholder:"KEY" help:"API key for --server (better in DISPATCHER_KEY; the other commands' ways work too)."`
	DataDir string `group:"A running server:" placeholder:"DIR" help:"Data directory of the server, if it is on this machine, for its admin key. Default: ./dispatcher-data."`
	Yes     bool   `help:"Go on although the server, or the database, has callbacks of its own."`

	DatabaseURL string `group:"A server of its own:" placeholder:"URL" help:"PostgreSQL to work in, in a schema that is made for it and dropped at the end. Default: SQLite in a temporary directory."`
	RedisURL    string `group:"A server of its own:" placeholder:"URL" help:"Redis for the index, under a prefix of its own that is removed at the end. Default: the index in the server's process."`
	TempDir     string `group:"A server of its own:" placeholder:"DIR" help:"Where the temporary directory is made: the disk that is measured. Default: the system's."`

	Phases      []string `default:"accept,drain,steady,delayed" placeholder:"PHASE" help:"What to measure. Default: accept,drain,steady,delayed."`
	Count       *int     `short:"n" placeholder:"N" help:"Callbacks of accept and drain. Default: 10000; with --server 1000."`
	Concurrency int      `default:"64" placeholder:"N" help:"Connections that hand callbacks over; a server of its own also sends so many at once. Default: 64."`
	Batch       int      `default:"1" placeholder:"N" help:"Callbacks a request in accept. Default: 1."`
	Rate        string   `placeholder:"N/s" help:"Rate of steady and delayed. Default: 500/s; with --server 100/s."`
	Duration    string   `default:"10s" placeholder:"DURATION" help:"Length of steady; delayed takes half of it. Default: 10s."`
	Size        int      `default:"512" placeholder:"BYTES" help:"Size of a body. Default: 512."`

	Listen   string `default:"127.0.0.1:0" group:"The receiver:" placeholder:"ADDR" help:"Address here on which bench receives. Default: a free port of 127.0.0.1."`
	Receiver string `group:"The receiver:" placeholder:"URL" help:"Address under which the server reaches --listen, if that is another one."`
	Delay    string `default:"0s" group:"The receiver:" placeholder:"DURATION" help:"Wait so long before each answer. Default: 0s."`

	Timeout string `default:"30s" placeholder:"DURATION" help:"How long nothing may arrive before what is missing counts as lost. Default: 30s."`
	JSON    bool   `help:"Print one JSON object for machines; docs/guide/bench.md explains its fields."`
}

// Help is what bench --help says below the flags' summary.
func (*BenchCommand) Help() string {
	return "accept: callbacks that are not due yet are handed over as fast as the connections allow. " +
		"drain: a backlog that falls due at one time is sent. " +
		"steady: callbacks come at a rate and are sent at once. delayed: callbacks fall due one after the other; none may arrive early.\n\n" +
		"Everything is sent to a receiver within bench, in a lane of its own (bench-…), with the lane's name as ref. Every callback that was accepted must arrive: " +
		"if one does not, or arrives early or changed, the exit code is 1.\n\n" +
		"On a running server the callbacks stay in the history; nothing stays open. A server that has callbacks of its own is measured only with --yes. " +
		"The server must be allowed to send to the receiver (egress_allow).\n\n" +
		"Ctrl-C ends it in order: what is open is canceled, what was made for the run is removed."
}

// Run measures, prints, and ends with 1 if anything that was accepted did not arrive as it should.
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
	shown := b.show(cmd.JSON)
	if err == nil {
		err = shown
	}
	return err
}

// A benchPlan is what the flags ask for, judged.
type benchPlan struct {
	*BenchCommand
	// run names this run: the lane and the ref of all its callbacks, and the start of what is made for it.
	run                      string
	phases                   []string
	count                    int
	rate                     float64
	duration, delay, timeout time.Duration
}

// The phases, in their order.
const (
	acceptPhase  = "accept"
	drainPhase   = "drain"
	steadyPhase  = "steady"
	delayedPhase = "delayed"
)

// Limits of a run: what the books of one process hold, what the API takes, and what a receiver may be waited
// for.
const (
	maxBenchCount       = 1_000_000
	maxBenchServerCount = 100_000
	maxBenchConcurrency = 4096
	maxBenchRate        = 100_000
	leastBenchSize      = 16
	mostBenchSize       = 256 << 10
	mostBenchBatch      = 1000
	mostBenchRequest    = 12 << 20
	mostBenchDelay      = 45 * time.Second
)

// plan judges the flags.
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
	p.judgePhases(wrong.Add)
	p.judgeNumbers(wrong.Add)
	p.judgePlaces(wrong.Add)
	if len(wrong.Lines) > 0 {
		return nil, wrong
	}
	return p, nil
}

// judgePhases puts the phases in their order.
func (p *benchPlan) judgePhases(refuse func(string, ...any)) {
	all := []string{acceptPhase, drainPhase, steadyPhase, delayedPhase}
	for _, written := range p.Phases {
		name := strings.TrimSpace(written)
		if !slices.Contains(all, name) {
			refuse("--phases: %q is none of %s", name, strings.Join(all, ", "))
		}
		p.phases = append(p.phases, name)
	}
	p.phases = slices.DeleteFunc(all, func(name string) bool { return !p.has(name) })
	if len(p.phases) == 0 && len(p.Phases) == 0 {
		refuse("--phases: name at least one of accept, drain, steady and delayed")
	}
}

// judgeNumbers reads and bounds everything that is counted.
func (p *benchPlan) judgeNumbers(refuse func(string, ...any)) {
	most := maxBenchCount
	if p.Server != "" {
		most = maxBenchServerCount // what one lane of a server in use is searched for
	}
	between := func(flag string, value, least, most int) {
		if value < least || value > most {
			refuse("--%s: %d is not between %d and %d", flag, value, least, most)
		}
	}
	between("count", p.count, 1, most)
	between("concurrency", p.Concurrency, 1, maxBenchConcurrency)
	between("batch", p.Batch, 1, mostBenchBatch)
	between("size", p.Size, leastBenchSize, mostBenchSize)
	if p.Batch*(p.Size+600) > mostBenchRequest {
		refuse("--batch: %d bodies of %d bytes are more than a request may have", p.Batch, p.Size)
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
	p.delay = length("delay", p.Delay, 0, mostBenchDelay)
	p.timeout = length("timeout", p.Timeout, time.Second, time.Hour)
	if p.delay >= p.timeout {
		refuse("--timeout: %s is not longer than --delay", schedule.FormatDuration(p.timeout))
	}
	if p.rate > maxBenchRate || p.steady() > most || p.steady() < 1 {
		refuse("--rate: %g each second for %s are not between 1 and %d callbacks", p.rate,
			schedule.FormatDuration(p.duration), most)
	}
}

// judgePlaces judges what goes with what.
func (p *benchPlan) judgePlaces(refuse func(string, ...any)) {
	together := func(what string, given bool, with string) {
		if given {
			refuse("--%s goes with %s only", what, with)
		}
	}
	running := p.Server != ""
	for _, own := range []struct{ flag, value string }{
		{"database-url", p.DatabaseURL}, {"redis-url", p.RedisURL}, {"temp-dir", p.TempDir},
	} {
		together(own.flag, running && own.value != "", "a server of bench's own, not with --server")
	}
	together("key", !running && p.Key != "", "--server")
	together("data-dir", !running && p.DataDir != "", "--server")
	together("receiver", p.Receiver != "" && p.Listen == "127.0.0.1:0",
		"--listen, the address here that it leads to,")
	if err := config.CheckAddress(p.Listen); err != nil {
		refuse("--listen: %s", err)
	} else if host, _, _ := net.SplitHostPort(p.Listen); p.Receiver == "" &&
		(host == "" || net.ParseIP(host).IsUnspecified()) {
		refuse("--listen %s needs --receiver, the address under which the server reaches it", p.Listen)
	}
	if u, err := url.Parse(p.Receiver); p.Receiver != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
			u.RawQuery != "") {
		refuse("--receiver is not an address of the form http://host:port")
	}
	if strings.HasPrefix(p.DatabaseURL, "sqlite:") {
		refuse("--database-url: SQLite needs none; --temp-dir names the disk that its file is made on")
	}
}

// interval is how long after the first callback of steady or delayed another one comes.
func (p *benchPlan) interval(i int) time.Duration {
	return time.Duration(i) * time.Duration(float64(time.Second)/p.rate)
}

// has says whether the plan has a phase.
func (p *benchPlan) has(phase string) bool { return slices.Contains(p.phases, phase) }

// steady and delayed are how many callbacks those phases have; warm is how many go before everything, greet
// how many before those, one after the other.
func (p *benchPlan) steady() int  { return int(p.rate * p.duration.Seconds()) }
func (p *benchPlan) delayed() int { return max(1, p.steady()/2) }
func (p *benchPlan) warm() int    { return min(max(p.count/5, 1), 1000) }

// greet is how many callbacks go before everything else, one after the other.
const greet = 10

// total is the most callbacks that the plan hands over.
func (p *benchPlan) total() int {
	n := greet + p.warm()
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

// settings are the plan as the report shows it.
func (p *benchPlan) settings() benchSettings {
	return benchSettings{
		Phases: p.phases, Count: p.count, Concurrency: p.Concurrency, BatchSize: p.Batch,
		RatePerSecond:   p.rate,
		DurationSeconds: p.duration.Seconds(), BodyBytes: p.Size, ReceiverDelayMs: millis(p.delay),
		TimeoutSeconds: p.timeout.Seconds(),
	}
}

// newBench returns a run that has not begun.
func newBench(c *console.Console, p *benchPlan) *bench {
	return &bench{c: c, plan: p, report: benchReport{
		Version: c.Version, StartedAt: time.Now().UTC().Truncate(time.Millisecond), Run: p.run,
		Settings: p.settings(),
		Machine: benchMachine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
			CPUs: runtime.GOMAXPROCS(0)},
	}}
}
