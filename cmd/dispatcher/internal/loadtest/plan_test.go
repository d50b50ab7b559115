package loadtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// TestQuantiles reads lines of quantiles.txt: a number n for the times 1 ms to n ms, or the times themselves.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/lines/quantiles.txt", func(line string) string {
		var times []time.Duration
		if n, err := strconv.Atoi(line); err == nil {
			for i := n; i > 0; i-- {
				times = append(times, time.Duration(i)*time.Millisecond)
			}
			return fmt.Sprintf("%+v", quantilesOf(times))
		}
		for word := range strings.FieldsSeq(line) {
			d, err := time.ParseDuration(word)
			if err != nil {
				t.Error(err)
			}
			times = append(times, d)
		}
		return fmt.Sprintf("%+v", quantilesOf(times))
	})
}

// planOf returns the plan of a command line.
func planOf(t *testing.T, args ...string) (*benchPlan, error) {
	t.Helper()
	var grammar struct {
		Bench BenchCommand `cmd:""`
	}
	term := program.Terminal()
	parser, err := console.NewParser(&term.Console, &grammar)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"bench"}, args...)); err != nil {
		return nil, err
	}
	return grammar.Bench.plan(time.Now())
}

func TestBenchPlans(t *testing.T) {
	t.Parallel()
	own, err := planOf(t)
	if err != nil {
		t.Fatal(err)
	}
	if own.count != 10_000 || own.rate != 500 || own.total() != probes+1000+10_000+5000+2500 {
		t.Errorf("own server: %+v", own)
	}
	other, err := planOf(t, "--server", "http://h:1", "--phases", "steady, accept", "--duration", "4s")
	if err != nil {
		t.Fatal(err)
	}
	if other.count != 1000 || other.rate != 100 ||
		!slices.Equal(other.phases, []string{acceptPhase, steadyPhase}) ||
		other.total() != probes+200+1000+400 {
		t.Errorf("running server: %+v", other)
	}
	if own.run == other.run || !strings.HasPrefix(own.run, "bench-") || len(schemaPrefix+own.run) > 63 ||
		len("dispatcher-"+own.run) > 64 {
		t.Errorf("the names of the runs are %s and %s", own.run, other.run)
	}
}

func TestBenchRefusesWrongSettings(t *testing.T) {
	t.Parallel()
	// bench refuses wrong settings with the server's messages, before it creates anything.
	dir := t.TempDir()
	for flag, want := range map[string]string{"--database-url=mysql://h/d": "setting database_url",
		"--redis-url=redis:/h": "setting redis_url"} {
		term := program.Terminal()
		term.Ends(t, console.ExitUsage, "bench", flag, "--temp-dir", dir)
		cmdtest.Contains(t, term.Stderr.String(), want)
	}
	cmdtest.IsEmpty(t, dir)
}

// TestEveryFieldOfTheReportIsDocumented compares the fields of --json with docs/guide/bench.md. There
// "phases.*" stands for each phase.
func TestEveryFieldOfTheReportIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../../docs/guide/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{} // the value: the field exists
	for line := range strings.Lines(string(doc)) {
		// A row of the table of fields starts with one or more names.
		if cells := strings.Split(line, "|"); len(cells) == 4 &&
			strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			for name := range strings.SplitSeq(cells[1], ",") {
				documented[strings.Trim(strings.TrimSpace(name), "`")] = false
			}
		}
	}
	anyPhase := regexp.MustCompile(`^phases\.\w+`)
	var walk func(reflect.Type, string)
	walk = func(of reflect.Type, prefix string) {
		for f := range of.Fields() {
			kind := f.Type
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			name = prefix + name
			leaf := kind == reflect.TypeFor[quantiles]() || kind == reflect.TypeFor[time.Time]()
			switch general := anyPhase.ReplaceAllString(name, "phases.*"); {
			case f.Anonymous:
				walk(kind, prefix)
			case kind.Kind() == reflect.Struct && !leaf:
				walk(kind, name+".")
			case has(documented, name):
				documented[name] = true
			case has(documented, general):
				documented[general] = true
			default:
				t.Errorf("docs/guide/bench.md does not explain %s", name)
			}
		}
	}
	walk(reflect.TypeFor[benchReport](), "")
	for name, found := range documented {
		if !found {
			t.Errorf("docs/guide/bench.md explains %s, which does not exist", name)
		}
	}
}

func has(set map[string]bool, name string) bool {
	_, ok := set[name]
	return ok
}

// TestServerClock reads lines of clocks.txt. Each callback has its creation time by the server's clock, and
// when it was sent and answered, in milliseconds.
func TestServerClock(t *testing.T) {
	t.Parallel()
	at := func(ms float64) time.Time { return time.UnixMilli(1_700_000_000_000).Add(time.Duration(ms * 1e6)) }
	transcript.Run(t, "testdata/lines/clocks.txt", func(line string) string {
		var clock serverClock
		for callback := range strings.FieldsSeq(line) {
			var created, sent, came float64
			if _, err := fmt.Sscanf(callback, "%g,%g,%g", &created, &sent, &came); err != nil {
				t.Error(err)
			}
			clock.observe(at(created), at(sent), at(came))
		}
		by, precision := clock.ahead()
		return fmt.Sprintf("%s ahead, ± %s", by, precision)
	})
}

// TestCountEarly counts only arrivals that are early by more than the precision of the clocks.
func TestCountEarly(t *testing.T) {
	t.Parallel()
	late := []time.Duration{-3 * time.Millisecond, -time.Millisecond, 0, 5 * time.Millisecond}
	for precision, want := range map[time.Duration]int{0: 2, time.Millisecond: 1, 10 * time.Millisecond: 0} {
		if got := countEarly(late, precision); got != want {
			t.Errorf("with precision %s, %d are early, not %d", precision, got, want)
		}
	}
}

// TestReceiverLedger checks first and repeated arrivals, changed bodies and unknown paths.
func TestReceiverLedger(t *testing.T) {
	t.Parallel()
	p, err := planOf(t, "-n", "10", "--size", "40", "--duration", "1s")
	if err != nil {
		t.Fatal(err)
	}
	r, err := openBenchReceiver(p)
	if err != nil {
		t.Fatal(err)
	}
	defer r.listener.Close()
	if len(r.body) != 40 || !json.Valid(r.body) {
		t.Errorf("the body is %d bytes, not 40: %s", len(r.body), r.body)
	}
	receive := func(path string, body []byte) int {
		rec := httptest.NewRecorder()
		r.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
		return rec.Code
	}
	for i := range 4 {
		r.ids[i] = "cb_" + strconv.Itoa(i)
	}
	path := func(i int) string { return strings.TrimPrefix(r.path(i), r.base) }
	before := r.arrivedOf(span{0, 4})
	for _, step := range []struct {
		path string
		body []byte
		want int
	}{
		{path(0), r.body, 200}, {path(0), r.body, 200}, {"/behind/a/proxy" + path(1), r.body, 200},
		{path(2), []byte("{}"), 200},
		{"/", r.body, 404}, {"/other-run/1", r.body, 404}, {path(-1), r.body, 404},
		{path(len(r.ids)), r.body, 404}, {path(7), r.body, 200},
	} {
		if code := receive(step.path, step.body); code != step.want {
			t.Errorf("%s got %d, not %d", step.path, code, step.want)
		}
	}
	all := span{0, 10}
	if before != 0 || r.count(all) != 4 || r.arrivedOf(all) != 3 || !slices.Equal(r.missing(all), []int{3}) {
		t.Errorf("%d accepted, %d arrived, %v missing", r.count(all), r.arrivedOf(all), r.missing(all))
	}
	if r.repeated.Load() != 1 || r.changed.Load() != 1 || r.strange.Load() != 4 || r.arrivals.Load() != 4 {
		t.Errorf("%d repeated, %d changed, %d strange, %d arrivals", r.repeated.Load(), r.changed.Load(),
			r.strange.Load(), r.arrivals.Load())
	}
	times := r.times(all, func(_ int, at time.Duration) time.Duration { return at })
	if len(times) != 3 || r.last(all) != slices.Max(times) {
		t.Errorf("times %v, the last %s", times, r.last(all))
	}
}

// clientOf returns a client that calls a handler without a network.
func clientOf(t *testing.T, server http.HandlerFunc) *remote.Client {
	t.Helper()
	term := program.Terminal()
	term.Transport = testserver.InProcess{Handler: server}
	cl, err := remote.New(&term.Console, remote.Flags{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// loader returns a generator whose server responds with the next status to each request, and repeats the last
// one. There is no network.
func loader(t *testing.T, statuses ...int) *generator {
	t.Helper()
	p, err := planOf(t, "-n", "10", "--concurrency", "2")
	if err != nil {
		t.Fatal(err)
	}
	r, err := openBenchReceiver(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.listener.Close() })
	var seen atomic.Int64
	server := func(w http.ResponseWriter, req *http.Request) {
		answer := `{"id":"cb_1"}`
		if strings.HasSuffix(req.URL.Path, "/batch") {
			answer = `{"results":[{"status":202,"callback":{"id":"cb_1"}},
 {"status":503,"problem":{"status":503,"title":"SQL is down"}}]}`
		}
		w.WriteHeader(statuses[min(int(seen.Add(1)), len(statuses))-1])
		cmdtest.Respond(t, w, answer)
	}
	cl := clientOf(t, server)
	g, err := newGenerator(cl, r, p)
	if err == nil {
		err = cl.Use(testserver.InProcess{Handler: http.HandlerFunc(server)}, requestLimit)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestRefusedCallbackEndsTheLoad checks that only accepted callbacks are counted.
func TestRefusedCallbackEndsTheLoad(t *testing.T) {
	t.Parallel()
	for batch, tc := range map[int]struct {
		status int
		want   string
	}{
		1: {http.StatusForbidden, "403"},
		2: {http.StatusMultiStatus, "the server refused a callback of a batch: SQL is down (503)"},
	} {
		g := loader(t, tc.status)
		_, err := g.send(t.Context(), load{span: span{0, 2}, batch: batch})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("batches of %d: %v", batch, err)
		}
		if n := g.r.count(span{0, 10}); n != batch-1 || int(g.accepted.Load()) != n {
			t.Errorf("batches of %d: %d are in the ledger, %d counted", batch, n, g.accepted.Load())
		}
	}
}

// TestBusyServerIsRetried checks that refusals are counted and that the retries are part of the request's
// time.
func TestBusyServerIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := loader(t, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusAccepted)
		times, err := g.send(t.Context(), load{span: span{0, 1}})
		if err != nil || g.refused.Load() != 2 || g.r.count(span{0, 10}) != 1 || len(times) != 1 ||
			times[0] < 3*remote.MinPause {
			t.Errorf("%v, refused %d, accepted %d, took %v", err, g.refused.Load(), g.r.count(span{0, 10}),
				times)
		}
		ctx, cancel := context.WithTimeout(t.Context(), remote.MinPause/2)
		defer cancel()
		_, err = loader(t, http.StatusServiceUnavailable).send(ctx, load{span: span{0, 1}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted retries: %v", err)
		}
	})
}

// TestNoteLimits checks the notes on what limited a phase.
func TestNoteLimits(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/lines/limits.txt", func(line string) string {
		given := map[string]*float64{}
		for word := range strings.FieldsSeq(line) {
			name, text, _ := strings.Cut(word, "=")
			value, _ := strconv.ParseFloat(text, 64) // 0 for a word without a value
			given[name] = &value
		}
		value := func(name string) float64 { return *cmp.Or(given[name], new(float64)) }
		p := &benchPlan{BenchCommand: &BenchCommand{},
			delay: time.Duration(value("delay") * float64(time.Second))}
		if given["database"] != nil {
			p.DatabaseURL = "postgres://h/d"
		}
		b := newBench(&program.Terminal().Console, p)
		b.report.Machine.CPUs = 2
		if given["running"] == nil {
			b.env = &environment{}
		}
		b.report.Phases.Drain = &drainFigures{
			workFigures: workFigures{ServerCPUsBusy: given["server"], OwnCPUsBusy: given["mine"],
				MachineIdleShare: given["idle"]},
			DeliveredPerSecond: value("rate"), MostAtOnce: int(value("at_once")),
		}
		b.noteLimits()
		return strings.Join(b.report.Notes, "\n")
	})
}

func TestMeasurementWork(t *testing.T) {
	t.Parallel()
	used := func(ms time.Duration) serverUsage { return serverUsage{Known: true, CPU: ms * time.Millisecond} }
	s := measurement{
		began: sample{server: used(100), own: used(10), idle: 50, all: 1000},
		ended: sample{server: used(1100), own: used(510), idle: 150, all: 1400},
		done:  sample{server: used(1300), own: used(610)},
		took:  2 * time.Second,
	}
	unknown := s
	unknown.ended.own.Known, unknown.done.own.Known, unknown.began.server.Known = false, false, false
	for want, got := range map[string]workFigures{
		`{"callbacks":400,"took_seconds":2,"server_cpu_seconds_per_1000":3,"own_cpu_seconds_per_1000":1.5,` +
			`"server_cpus_busy":0.5,"own_cpus_busy":0.25,"machine_idle_share":0.25}`: s.work(400),
		// Unknown figures are left out, and nothing is divided by zero.
		`{"callbacks":400,"took_seconds":2,"machine_idle_share":0.25}`: unknown.work(400),
		`{"callbacks":0,"took_seconds":2}`:                             unknown.work(0),
	} {
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			t.Errorf("took %s (%v), not %s", text, err, want)
		}
	}
}

// TestCheckResult finds errors of callbacks that all arrived.
func TestCheckResult(t *testing.T) {
	t.Parallel()
	for want, tc := range map[string]struct {
		dead           string
		early, changed int
	}{
		"": {},
		"2 callbacks arrived before they were due":   {early: 2},
		"3 arrivals had another body than submitted": {changed: 3},
		"cb_7 arrived and ended dead exhausted": {
			dead: `{"id":"cb_7","state":"dead","reason":"exhausted"}`},
	} {
		b := newBench(&program.Terminal().Console, &benchPlan{BenchCommand: &BenchCommand{}, run: "bench-1"})
		b.cl = clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.RequestURI(), "ref=bench-1") {
				t.Errorf("requested %s", r.URL)
			}
			cmdtest.Respond(t, w, `{"data":[`+tc.dead+`]}`)
		})
		b.receiver, b.report.Tally.Early = &benchReceiver{}, tc.early
		b.receiver.changed.Store(int64(tc.changed))
		got := ""
		if err := b.checkResult(t.Context()); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("found %q, not %q", got, want)
		}
	}
}
