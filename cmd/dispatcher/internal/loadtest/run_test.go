package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	return &struct {
		Bench       BenchCommand       `cmd:""`
		BenchServer BenchServerCommand `cmd:""`
	}{}
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t) }

// small returns the arguments of a run with little load.
func small(args ...string) []string {
	return slices.Concat([]string{"bench", "-n", "40", "--concurrency", "4", "--rate", "40", "--duration",
		"1s"}, args)
}

// reportOf decodes the output of --json.
func reportOf(t *testing.T, term *cmdtest.Terminal) *benchReport {
	t.Helper()
	var r benchReport
	decoder := json.NewDecoder(&term.Stdout)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("no report: %v\n%s", err, term.Stderr.String())
	}
	return &r
}

// wantAllPhases checks the report of a complete run.
func wantAllPhases(t *testing.T, r *benchReport) {
	t.Helper()
	p, b := &r.Phases, &r.Tally
	if p.Accept == nil || p.Drain == nil || p.Steady == nil || p.Delayed == nil {
		t.Fatalf("phases are missing: %+v", r)
	}
	// A busy machine may have submitted fewer callbacks in time. The tally must still be consistent.
	submitted := probes + 8 + p.Accept.Callbacks + p.Steady.Callbacks + p.Delayed.Callbacks
	complete := b.Accepted >= submitted && b.Accepted == b.Arrived && b.Missing == 0 && b.GivenUp == 0
	if !complete || b.Early != 0 || b.Changed != 0 {
		t.Errorf("the tally: %+v", *b)
	}
	if p.Accept.Callbacks == 0 || p.Accept.AcceptedPerSecond <= 0 || p.Drain.DeliveredPerSecond <= 0 ||
		p.Steady.AcceptedPerSecond <= 0 {
		t.Errorf("nothing was measured: %+v %+v %+v", p.Accept, p.Drain, p.Steady)
	}
	for name, q := range map[string]quantiles{
		"request": p.Accept.RequestMs, "request to arrival": p.Steady.RequestStartToArriveMs,
		"lateness": p.Delayed.LatenessMs,
	} {
		if !(0 < q.P50 && q.P50 <= q.P90 && q.P90 <= q.P99 && q.P99 <= q.Max) {
			t.Errorf("%s: %+v", name, q)
		}
	}
	if !r.OK || r.Error != "" {
		t.Errorf("ok is %t, error %q", r.OK, r.Error)
	}
}

// TestBenchWithItsOwnServer checks that bench measures the cost of its own server and removes everything.
func TestBenchWithItsOwnServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Variables of another server must not reach this one.
	term := program.Terminal(cmdtest.AsProgram+"=1",
		"DISPATCHER_DATABASE_URL=postgres://other@127.0.0.1:1/none", "DISPATCHER_SERVER=http://127.0.0.1:1")
	term.Ends(t, console.ExitOK, small("--json", "--temp-dir", dir, "--delay", "1ms")...)
	r := reportOf(t, term)
	wantAllPhases(t, r)
	if !r.Server.Embedded || r.Server.Database != "sqlite" || r.Server.Index != "embedded" ||
		r.Tally.HistoryCallbacks != 0 {
		t.Errorf("measured %+v, tally %+v", r.Server, r.Tally)
	}
	peak, cpu := r.Server.PeakRSSBytes, r.Phases.Drain.ServerCPUSecondsPer1000
	if usageNow().Known && (peak == nil || *peak < 1<<20 || cpu == nil || *cpu <= 0) {
		t.Errorf("the server's cost is unknown: %+v %+v", r.Server, r.Phases.Drain)
	}
	cmdtest.Contains(t, term.Stderr.String(), "bench: DISPATCHER_SERVER is ignored",
		"bench: accept: 40 callbacks", "bench: delayed: ended after")
	cmdtest.IsEmpty(t, dir)
}

// benchAt runs bench against a running server. It must end with the exit code.
func benchAt(t *testing.T, r *apptest.Running, code int, args ...string) *cmdtest.Terminal {
	t.Helper()
	term := program.Terminal()
	term.Ends(t, code, small(r.Flags(args...)...)...)
	return term
}

func TestBenchOfARunningServer(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	term := benchAt(t, r, console.ExitOK, "--json", "--phases", "steady")
	cmdtest.Contains(t, term.Stderr.String(), "up to 58 callbacks of 512 bytes, over 4 connections, "+
		"to bench's own receiver at http://127.0.0.1:")
	tally := reportOf(t, term).Tally
	if n := tally.HistoryCallbacks; n < probes+8 || n != tally.Accepted {
		t.Errorf("the tally is %+v", tally)
	}
	// The counters are updated with a delay.
	testserver.Until(t, "the run is counted", func() bool {
		return r.Counters(t).States.Succeeded == tally.HistoryCallbacks
	})

	// Now the server has callbacks, so bench needs --yes.
	cmdtest.Contains(t, benchAt(t, r, console.ExitUsage).Stderr.String(), "use --yes to continue")
	term = benchAt(t, r, console.ExitOK, "--yes", "--batch", "7")
	cmdtest.Contains(t, term.Stdout.String(), "accept", "request of 7 to response", "202 to arrival",
		"due to arrival",
		"0 given up + 0 missing.", "No callback of the run is open.")
	if got := countOf(t, r, "state=scheduled"); got != 0 {
		t.Errorf("%d are still open", got)
	}
	if got := countOf(t, r, "state=succeeded") - tally.HistoryCallbacks; got < probes+8 || got > 118 {
		t.Errorf("the second run created %d callbacks", got)
	}
}

func countOf(t *testing.T, r *apptest.Running, query string) int {
	return len(r.Callbacks(t, query+"&limit=500"))
}

func TestBenchErrors(t *testing.T) {
	t.Parallel()
	open := apptest.Start(t, apptest.Settings(t))
	closed := apptest.Settings(t)
	closed.EgressAllow = nil
	guarded := apptest.Start(t, closed)
	notSending := apptest.Start(t, apptest.Settings(t, "--hold"))
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--server", open.Client.Base, "--key", "wrong"}, []string{"401 unauthorized"}},
		{[]string{"--server", "http://127.0.0.1:1", "--key", "k"},
			[]string{"no server listens at http://127.0.0.1:1"}},
		{open.Flags("--listen", "localhost:0", "--receiver", "http://127.0.0.1:1"),
			[]string{"the first callback does not arrive: cb_", "connect_refused",
				"--listen and --receiver"}},
		{guarded.Flags(), []string{"the server does not send to http://127.0.0.1:", "egress_allow"}},
		{notSending.Flags("--timeout", "1s"),
			[]string{"is not sent within 1s: cb_", "not attempted", "is sending off"}},
		{[]string{"--listen", strings.TrimPrefix(open.Client.Base, "http://")},
			[]string{"listen for bench's receiver"}},
	} {
		term := program.Terminal(cmdtest.AsProgram + "=1")
		term.Ends(t, console.ExitFailed, small(tc.args...)...)
		cmdtest.Contains(t, term.Stderr.String(), tc.want...)
	}
	for _, r := range []*apptest.Running{open, guarded, notSending} {
		for _, cb := range r.Callbacks(t, "") {
			if cb.State != "canceled" {
				t.Errorf("%s of %s is %s", cb.ID, cb.Ref, cb.State)
			}
		}
	}
}

// TestBenchFindsALoss lets another program respond with 200 to two callbacks. They count as lost, although
// the server reports success.
func TestBenchFindsALoss(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	// The proxy needs the receiver's port before bench starts.
	behind := &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", testserver.FreePort(t))}
	forward := httputil.NewSingleHostReverseProxy(behind)
	var seen atomic.Int64
	proxy := cmdtest.ServeHandler(t, func(w http.ResponseWriter, req *http.Request) {
		if n := seen.Add(1); n == 30 || n == 31 {
			return
		}
		forward.ServeHTTP(w, req)
	})
	term := benchAt(t, r, console.ExitFailed, "--listen", behind.Host, "--receiver", proxy, "--timeout",
		"10s", "--json")
	report := reportOf(t, term)
	if b := report.Tally; report.OK || b.Missing != 2 || len(b.MissingIDs) != 2 || b.Accepted != b.Arrived+2 {
		t.Errorf("ok is %t, the tally is %+v", report.OK, b)
	}
	stderr := term.Stderr.String()
	cmdtest.Contains(t, stderr, "2 of 40 accepted callbacks have not arrived, and nothing came for 10s",
		"succeeded, 200 ok")
	for _, id := range report.Tally.MissingIDs {
		cmdtest.Contains(t, stderr, id)
		if state := r.State(t, id); state != "succeeded" {
			t.Errorf("%s is %s", id, state)
		}
	}
}

// TestBenchInterruptedOnARunningServer checks that Ctrl-C leaves no callback open.
func TestBenchInterruptedOnARunningServer(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	term, code := program.Terminal(), make(chan int, 1)
	go func() {
		// One callback falls due per second, so most stay open for minutes.
		args := r.Flags("-n", "40", "--phases", "delayed", "--rate", "1", "--duration", "1h", "--json")
		code <- term.InvokeUntil(ctx, append([]string{"bench"}, args...)...)
	}()
	testserver.Until(t, "more are open than one call cancels", func() bool {
		return r.Counters(t).Items() > control.MaxCancelRef
	})
	interrupt()
	if got := <-code; got != console.ExitFailed {
		t.Errorf("exit code %d", got)
	}
	cmdtest.Contains(t, term.Stderr.String(), "dispatcher: interrupted")
	report := reportOf(t, term)
	b := report.Tally
	if report.OK || report.Error != "interrupted" || b.GivenUp == 0 || b.Missing != 0 || b.OpenLeft != 0 ||
		b.Accepted != b.Arrived+b.GivenUp {
		t.Errorf("the report is %+v", report)
	}
	if b.Canceled == 0 || countOf(t, r, "order=due") != 0 {
		t.Errorf("some are still open; the tally is %+v", b)
	}
	testserver.Until(t, "all canceled callbacks are counted", func() bool {
		return r.Counters(t).States.Canceled == b.Canceled
	})
}

// TestServerEndsWithBench ends bench in two ways. Ctrl-C also removes the data.
func TestServerEndsWithBench(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*os.Process) error{
		"interrupt": func(p *os.Process) error { return p.Signal(os.Interrupt) },
		"kill":      (*os.Process).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command(self, "bench", "--temp-dir", dir, "-n", "50", "--concurrency", "4",
				"--phases", "drain,steady")
			cmd.Env = append(os.Environ(), cmdtest.AsProgram+"=1")
			log := &lastLines{}
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all := func() string { return strings.Join(log.all(), "\n") }
			testserver.Until(t, "bench measures", func() bool {
				return strings.Contains(all(), "bench: drain:")
			})
			lock := lockOf(t, dir)
			if !locked(lock) {
				t.Error("the server is not running")
			}
			if err := end(cmd.Process); err != nil {
				t.Fatal(err)
			}
			exit := cmd.Wait()
			testserver.Until(t, "the server has ended", func() bool { return !locked(lock) })
			if name == "kill" {
				return
			}
			if failed, ok := errors.AsType[*exec.ExitError](exit); !ok ||
				failed.ExitCode() != console.ExitFailed {
				t.Errorf("bench ended with %v", exit)
			}
			cmdtest.Contains(t, all(), "dispatcher: interrupted")
			cmdtest.IsEmpty(t, dir)
		})
	}
}

// lockOf returns the lock file that the server in a temporary directory holds while it runs.
func lockOf(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v in %s (%v)", entries, dir, err)
	}
	return dir + "/" + entries[0].Name() + "/" + app.LockFileName
}

// locked reports whether a lock file exists and a process holds it.
func locked(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	f, err := machine.LockFile(path)
	if err != nil {
		return true
	}
	f.Close()
	return false
}

// TestServerEndsEarly checks that the error contains the last line of the server's log.
func TestServerEndsEarly(t *testing.T) {
	t.Parallel()
	term := program.Terminal(cmdtest.AsProgram+"=1", "GOMEMLIMIT=nonsense") // Go refuses to start
	term.Ends(t, console.ExitFailed, small("--temp-dir", t.TempDir())...)
	cmdtest.Contains(t, term.Stderr.String(), "the server did not start: ", "GOMEMLIMIT")
	o := &serverProcess{ended: make(chan struct{}), exit: errors.New("exit status 3")}
	for _, piece := range []string{"first\nlast wor", "ds\nand half a line"} {
		if _, err := o.log.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	close(o.ended)
	b := &bench{env: &environment{server: o}}
	ctx, fail := context.WithCancelCause(t.Context())
	b.watchServer(ctx, fail)
	if got := context.Cause(ctx); got == nil ||
		got.Error() != "the server ended during the run: exit status 3: last words" {
		t.Errorf("got %v", got)
	}
}

func TestLastLinesAreBounded(t *testing.T) {
	t.Parallel()
	var l lastLines
	for i := range 3 * keptLines {
		if n, err := l.Write([]byte(strconv.Itoa(i) + strings.Repeat("x", 3*maxKept) + "\n" +
			strings.Repeat("y", maxKept))); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if lines := l.all(); len(lines) != keptLines || len(lines[0]) != maxKept || len(l.part) > maxKept {
		t.Errorf("%d lines of %d bytes, and a last one of %d bytes", len(lines), len(lines[0]), len(l.part))
	}
}

// TestBenchOnPostgresAndRedis checks that bench removes its schema and its keys. A database with callbacks
// needs --yes, and bench does not touch them.
func TestBenchOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	database, index := testserver.SharedPostgres(t).Database(t), testserver.SharedRedis(t)
	options, err := redis.ParseURL(index)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	const foreign = "other-bench-1:key"
	if err := client.Set(t.Context(), foreign, "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		err := onPostgres(t.Context(), database, func(conn *pgx.Conn) error {
			rows, err := conn.Query(t.Context(),
				`SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dispatcher%'`)
			if err != nil {
				return err
			}
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		keys, redisErr := client.Keys(t.Context(), "*bench-*").Result() // with any hash tag
		if err := errors.Join(err, redisErr); err != nil {
			t.Fatal(err)
		}
		return append(names, keys...)
	}
	run := func(code int, args ...string) *cmdtest.Terminal {
		t.Helper()
		term := program.Terminal(cmdtest.AsProgram + "=1")
		on := []string{"--database-url", database, "--redis-url", index, "--temp-dir", t.TempDir(), "--json"}
		term.Ends(t, code, small(append(on, args...)...)...)
		if got := left(); !slices.Equal(got, []string{foreign}) {
			t.Errorf("%v left behind %q", args, got)
		}
		return term
	}
	run(console.ExitOK, "--phases", "steady")
	user := apptest.Start(t, apptest.Settings(t,
		append(cmdtest.BothKeys(), "--database-url="+database, "--hold")...))
	id := user.Send(t, "http://127.0.0.1:1/")
	cmdtest.Contains(t, run(console.ExitUsage).Stderr.String(), "the database has callbacks (schema public)")
	report := reportOf(t, run(console.ExitOK, "--yes"))
	wantAllPhases(t, report)
	if report.Server.Database != "postgresql" || report.Server.Index != "redis" {
		t.Errorf("measured %+v", report.Server)
	}
	if all := user.Callbacks(t, ""); len(all) != 1 || all[0].ID != id || all[0].State != "scheduled" {
		t.Errorf("the other callbacks are now %+v", all)
	}
}
