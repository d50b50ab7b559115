package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// small are flags of a run that takes little of a busy machine.
func small(args ...string) []string {
	return slices.Concat([]string{"bench", "-n", "40", "--concurrency", "4", "--rate", "40", "--duration", "1s"}, args)
}

// invokeUntil is invoke with an end that Ctrl-C would bring.
func (t *terminal) invokeUntil(ctx context.Context, args ...string) int {
	var grammar commands
	parser, err := newParser(&t.console, &grammar)
	if err != nil {
		return t.fail(err)
	}
	selected, err := parser.Parse(args)
	if err != nil {
		return t.fail(err)
	}
	selected.BindTo(ctx, (*context.Context)(nil))
	return t.fail(selected.Run(&t.console))
}

// reportOf reads what --json printed.
func reportOf(t *testing.T, term *terminal) benchReport {
	t.Helper()
	var r benchReport
	decoder := json.NewDecoder(&term.stdout)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("no report: %v\n%s", err, term.stderr.String())
	}
	return r
}

// wantAllPhases checks what must hold of every run that came to its end.
func wantAllPhases(t *testing.T, r *benchReport) {
	t.Helper()
	p, b := &r.Phases, &r.Books
	if p.Accept == nil || p.Drain == nil || p.Steady == nil || p.Delayed == nil {
		t.Fatalf("phases are missing: %+v", r)
	}
	// A machine that is busy may have handed over fewer than were asked for in time; the books balance all the same.
	if b.Accepted < greet+8+p.Accept.Callbacks+p.Steady.Callbacks+p.Delayed.Callbacks || b.Accepted != b.Arrived || b.Missing != 0 || b.GivenUp != 0 || b.Early != 0 || b.Changed != 0 {
		t.Errorf("the books: %+v", *b)
	}
	if p.Accept.Callbacks == 0 || p.Accept.AcceptedPerSecond <= 0 || p.Drain.DeliveredPerSecond <= 0 || p.Steady.AcceptedPerSecond <= 0 {
		t.Errorf("nothing was measured: %+v %+v %+v", p.Accept, p.Drain, p.Steady)
	}
	for name, q := range map[string]quantiles{
		"request": p.Accept.RequestMs, "request to arrival": p.Steady.RequestStartToArriveMs, "lateness": p.Delayed.LatenessMs,
	} {
		if !(0 < q.P50 && q.P50 <= q.P90 && q.P90 <= q.P99 && q.P99 <= q.Max) {
			t.Errorf("%s: %+v", name, q)
		}
	}
	if !r.OK || r.Error != "" {
		t.Errorf("ok is %t, error %q", r.OK, r.Error)
	}
}

// By itself bench starts a server of its own, whose cost it tells apart from its own, and leaves nothing behind.
func TestBenchByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A variable of another server must not reach this one.
	term := newTerminal(asProgram+"=1", "DISPATCHER_DATABASE_URL=postgres://nobody@127.0.0.1:1/none", "DISPATCHER_SERVER=http://127.0.0.1:1")
	if code := term.invoke(small("--json", "--temp-dir", dir, "--delay", "1ms")...); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	r := reportOf(t, term)
	wantAllPhases(t, &r)
	if !r.Server.Embedded || r.Server.Database != "sqlite" || r.Server.Index != "embedded" || r.Books.HistoryCallbacks != 0 {
		t.Errorf("measured %+v, books %+v", r.Server, r.Books)
	}
	if usageNow().Known && (r.Server.PeakRSSBytes == nil || *r.Server.PeakRSSBytes < 1<<20 || r.Phases.Drain.ServerCPUSecondsPer1000 == nil || *r.Phases.Drain.ServerCPUSecondsPer1000 <= 0) {
		t.Errorf("the server's cost is not known: %+v %+v", r.Server, r.Phases.Drain)
	}
	for _, line := range []string{"bench: DISPATCHER_SERVER does not count here", "bench: accept: 40 callbacks", "bench: delayed: ended after"} {
		if !strings.Contains(term.stderr.String(), line) {
			t.Errorf("no line %q in\n%s", line, term.stderr.String())
		}
	}
	isEmpty(t, dir)
}

func TestBenchOfARunningServer(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	server := []string{"--server", r.cl.base, "--key", r.s.AdminKey}
	term := newTerminal()
	if code := term.invoke(append(small("--batch", "7"), server...)...); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	for _, want := range []string{"accept", "request of 7 to its answer", "202 to arrival", "due to arrival", "0 given up + 0 missing.", "Nothing of the run is open."} {
		if !strings.Contains(term.stdout.String(), want) {
			t.Errorf("does not say %q:\n%s", want, term.stdout.String())
		}
	}
	if !strings.Contains(term.stderr.String(), " is handed up to 118 callbacks of 512 bytes, over 4 connections, to bench's own receiver at http://127.0.0.1:") {
		t.Errorf("did not say what it was going to do: %s", term.stderr.String())
	}
	// Now it has callbacks of its own.
	before := r.states(t)
	term = newTerminal()
	if code := term.invoke(append(small(), server...)...); code != exitUsage || !strings.Contains(term.stderr.String(), "give --yes if that is meant") {
		t.Errorf("without --yes: exit code %d: %s", code, term.stderr.String())
	}
	if got := r.states(t); got != before {
		t.Errorf("without --yes the server went from %+v to %+v", before, got)
	}
	term = newTerminal()
	if code := term.invoke(append(small("--yes", "--json"), server...)...); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	report := reportOf(t, term)
	wantAllPhases(t, &report)
	if got := r.states(t); got.Scheduled != 0 || int(got.Succeeded-before.Succeeded) != report.Books.HistoryCallbacks {
		t.Errorf("the server went from %+v to %+v, and %d are said to be left", before, got, report.Books.HistoryCallbacks)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

// serverStates are counters of a server.
type serverStates struct{ Scheduled, Succeeded, Dead, Canceled int64 }

// states returns the server's counters once they stand still: they are folded now and then.
func (r *running) states(t *testing.T) serverStates {
	t.Helper()
	read := func() (s struct{ States serverStates }) {
		if _, err := r.cl.call(t.Context(), http.MethodGet, "/v1/stats", nil, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	last, since := read().States, time.Now()
	until(t, "the counters stand still", func() bool {
		if got := read().States; got != last {
			last, since = got, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
	return last
}

func TestBenchSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	open := startServer(t, testSettings(t))
	closed := testSettings(t)
	closed.EgressAllow = nil
	guarded := startServer(t, closed)
	held := startServer(t, testSettings(t, "--hold"))
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"a key that is refused":          {[]string{"--server", open.cl.base, "--key", "wrong"}, []string{"401 unauthorized"}},
		"nobody there":                   {[]string{"--server", "http://127.0.0.1:1", "--key", "k"}, []string{"nobody listens at http://127.0.0.1:1"}},
		"a receiver that nobody reaches": {[]string{"--server", open.cl.base, "--key", open.s.AdminKey, "--listen", "localhost:0", "--receiver", "http://127.0.0.1:1"}, []string{"the first callback does not arrive: cb_", "connect_refused", "--listen and --receiver"}},
		"a guard that forbids it":        {[]string{"--server", guarded.cl.base, "--key", guarded.s.AdminKey}, []string{"the server does not send to http://127.0.0.1:", "egress_allow"}},
		"a server that sends nothing":    {[]string{"--server", held.cl.base, "--key", held.s.AdminKey, "--timeout", "1s"}, []string{"is not sent within 1s: cb_", "not attempted", "Is sending held"}},
		"an address that is taken":       {[]string{"--listen", strings.TrimPrefix(open.cl.base, "http://")}, []string{"listen for bench's receiver"}},
	} {
		term := newTerminal(asProgram + "=1")
		if code := term.invoke(small(tc.args...)...); code != exitFailed {
			t.Errorf("%s: exit code %d", name, code)
		}
		for _, want := range tc.want {
			if !strings.Contains(term.stderr.String(), want) {
				t.Errorf("%s: does not say %q: %s", name, want, term.stderr.String())
			}
		}
	}
	for _, r := range []*running{open, guarded, held} {
		var page callbackPage
		if _, err := r.cl.call(t.Context(), http.MethodGet, "/v1/callbacks", nil, &page); err != nil {
			t.Fatal(err)
		}
		for _, cb := range page.Data {
			if cb.State != "canceled" {
				t.Errorf("%s of %s is %s", cb.ID, cb.Ref, cb.State)
			}
		}
		if err := r.end(t); err != nil {
			t.Error(err)
		}
	}
}

// What was accepted and answered 200 by somebody else never arrives: that is a loss, whatever the server believes.
func TestBenchFindsALoss(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	// The port of the receiver must be known beforehand.
	free := httptest.NewServer(http.NotFoundHandler())
	behind, err := url.Parse(free.URL)
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	forward := httputil.NewSingleHostReverseProxy(behind)
	var seen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n := seen.Add(1); n == 30 || n == 31 {
			return
		}
		forward.ServeHTTP(w, req)
	}))
	defer thief.Close()
	term := newTerminal()
	args := small("--server", r.cl.base, "--key", r.s.AdminKey, "--listen", behind.Host, "--receiver", thief.URL, "--timeout", "2s", "--json")
	if code := term.invoke(args...); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	report := reportOf(t, term)
	if b := report.Books; report.OK || b.Missing != 2 || len(b.MissingIDs) != 2 || b.Accepted != b.Arrived+2 {
		t.Errorf("ok is %t, the books %+v", report.OK, b)
	}
	said := term.stderr.String()
	if !strings.Contains(said, "2 of 40 accepted callbacks have not arrived, and for 2s nothing came") || !strings.Contains(said, "succeeded, 200 ok") {
		t.Errorf("said %s", said)
	}
	for _, id := range report.Books.MissingIDs {
		if !strings.Contains(said, id) || r.state(t, id) != "succeeded" {
			t.Errorf("%s is %s, and said was %s", id, r.state(t, id), said)
		}
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

// Ctrl-C in the middle leaves nothing open on a running server.
func TestBenchInterruptedOnARunningServer(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	term, code := newTerminal(), make(chan int, 1)
	go func() {
		// More than one call cancels.
		code <- term.invokeUntil(ctx, "bench", "--server", r.cl.base, "--key", r.s.AdminKey, "-n", "1200", "--phases", "drain", "--json")
	}()
	until(t, "the backlog is handed over", func() bool {
		var page callbackPage
		if _, err := r.cl.call(t.Context(), http.MethodGet, "/v1/callbacks?order=due&limit=500", nil, &page); err != nil {
			t.Fatal(err)
		}
		return len(page.Data) == 500
	})
	interrupt()
	if got := <-code; got != exitFailed || !strings.Contains(term.stderr.String(), "dispatcher: interrupted") {
		t.Errorf("exit code %d, said %s", got, term.stderr.String())
	}
	report := reportOf(t, term)
	b := report.Books
	if report.OK || report.Error != "interrupted" || b.GivenUp == 0 || b.Missing != 0 || b.OpenLeft != 0 || b.Accepted != b.Arrived+b.GivenUp {
		t.Errorf("the report is %+v", report)
	}
	if got := r.states(t); got.Scheduled != 0 || got.Canceled == 0 || int(got.Canceled) != b.Canceled {
		t.Errorf("left are %+v, said was %+v", got, b)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

// program returns this test's binary as the program itself.
func program(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd, nil
}

// However bench ends, its server ends too; by Ctrl-C also its data.
func TestBenchsServerEndsWithIt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*os.Process) error{
		"interrupt": func(p *os.Process) error { return p.Signal(os.Interrupt) },
		"kill":      (*os.Process).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd, err := program("bench", "--temp-dir", dir, "-n", "50", "--concurrency", "4", "--phases", "drain,steady")
			if err != nil {
				t.Fatal(err)
			}
			said := &lastLines{}
			cmd.Stderr = said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running := func() string { return strings.Join(said.all(), "\n") }
			until(t, "it measures", func() bool { return strings.Contains(running(), "bench: drain:") })
			lock := lockOf(t, dir)
			if taken(t, lock) != true {
				t.Error("the server does not run")
			}
			if err := end(cmd.Process); err != nil {
				t.Fatal(err)
			}
			exit := cmd.Wait()
			until(t, "the server has ended", func() bool { return !taken(t, lock) })
			if name == "kill" {
				return
			}
			if failed, ok := errors.AsType[*exec.ExitError](exit); !ok || failed.ExitCode() != exitFailed || !strings.Contains(running(), "dispatcher: interrupted") {
				t.Errorf("it ended with %v:\n%s", exit, running())
			}
			isEmpty(t, dir)
		})
	}
}

// lockOf is the lock that the server in a temporary directory holds while it runs.
func lockOf(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v in %s (%v)", entries, dir, err)
	}
	return dir + "/" + entries[0].Name() + "/" + lockFileName
}

// taken says whether a lock exists and is held.
func taken(t *testing.T, path string) bool {
	t.Helper()
	if isMissing(path) {
		return false
	}
	f, err := lockFile(path)
	if err != nil {
		return true
	}
	f.Close()
	return false
}

// A server that ends in the middle is said to, with its last words.
func TestBenchsServerMayEndBefore(t *testing.T) {
	t.Parallel()
	term := newTerminal(asProgram+"=1", "GOMEMLIMIT=nonsense") // which Go itself refuses
	if code := term.invoke(small("--temp-dir", t.TempDir())...); code != exitFailed || !strings.Contains(term.stderr.String(), "the server did not start: ") || !strings.Contains(term.stderr.String(), "GOMEMLIMIT") {
		t.Errorf("exit code %d: %s", code, term.stderr.String())
	}
	o := &ownServer{ended: make(chan struct{})}
	if _, err := o.said.Write([]byte("first\nlast wor")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.said.Write([]byte("ds\nand half a line")); err != nil {
		t.Fatal(err)
	}
	o.exit = errors.New("exit status 3")
	close(o.ended)
	b := &bench{own: &ownPlace{server: o}}
	ctx, fail := context.WithCancelCause(t.Context())
	b.watchOwn(ctx, fail)
	if got := context.Cause(ctx); got == nil || got.Error() != "the server ended in the middle of the run: exit status 3: last words" {
		t.Errorf("said %v", got)
	}
}

func TestLastLinesAreBounded(t *testing.T) {
	t.Parallel()
	var l lastLines
	for i := range 3 * keptLines {
		if n, err := l.Write([]byte(strconv.Itoa(i) + strings.Repeat("x", 3*maxKept) + "\n" + strings.Repeat("y", maxKept))); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if lines := l.all(); len(lines) != keptLines || len(lines[0]) != maxKept || len(l.part) > maxKept {
		t.Errorf("%d lines of %d bytes, and %d bytes more", len(lines), len(lines[0]), len(l.part))
	}
}

// On PostgreSQL and Redis bench works in a schema and under a prefix of its own, and removes both.
func TestBenchOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	database, index := testserver.StartPostgres(t), testserver.StartRedis(t)
	options, err := redis.ParseURL(index)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.Set(t.Context(), "dispatcher:foreign", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		t.Helper()
		var names []string
		err := onPostgres(t.Context(), database, func(conn *pgx.Conn) error {
			rows, err := conn.Query(t.Context(), `SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dispatcher%'`)
			if err != nil {
				return err
			}
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return append(names, keys...)
	}
	on := []string{"--database-url", database, "--redis-url", index, "--temp-dir", t.TempDir(), "--json"}
	term := newTerminal(asProgram + "=1")
	if code := term.invoke(small(on...)...); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	report := reportOf(t, term)
	wantAllPhases(t, &report)
	if report.Server.Database != "postgresql" || report.Server.Index != "redis" {
		t.Errorf("measured %+v", report.Server)
	}
	if got := left(); !slices.Equal(got, []string{"dispatcher:foreign"}) {
		t.Errorf("left are %q", got)
	}

	// A database in use is worked in only where that is meant, and nothing in it is touched.
	user := startServer(t, testSettings(t, "--database-url="+database, "--admin-key=admin", "--master-key="+someKey('m'), "--hold"))
	id := user.send(t, "http://127.0.0.1:1/")
	term = newTerminal(asProgram + "=1")
	if code := term.invoke(small(on...)...); code != exitUsage || !strings.Contains(term.stderr.String(), "has callbacks of its own (schema public)") {
		t.Errorf("exit code %d: %s", code, term.stderr.String())
	}
	term = newTerminal(asProgram + "=1")
	if code := term.invoke(small(append(on, "--yes")...)...); code != exitOK {
		t.Errorf("with --yes: exit code %d: %s", code, term.stderr.String())
	}
	if got := left(); !slices.Equal(got, []string{"dispatcher:foreign"}) {
		t.Errorf("left are %q", got)
	}
	if got := user.states(t); got.Scheduled != 1 || got.Succeeded != 0 || user.state(t, id) != "scheduled" {
		t.Errorf("the database's own callbacks are now %+v", got)
	}
	if err := user.end(t); err != nil {
		t.Fatal(err)
	}
}
