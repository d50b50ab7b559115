// Package faults tests the built binary under faults and under load: the matrix of faults, races against the
// claim, crowds of endpoints, polls, redrives, and misbehaving receivers. make test-full runs it.
//
// Time limits are loose, because the machine may do other work too. The printed figures are for readers.
package faults

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A line of the table is one fault: the sums over its trials, and the longest times.
type line struct {
	id, title    string
	on           []string
	runs, failed int
	harness.TrialResult
	took time.Duration
}

// A table collects the results of the trials.
type table struct {
	mu       sync.Mutex
	lines    []*line
	remarks  []string
	failures []string
}

var faultReport = flag.String("faults-report", "", "file that the table of the faults is written to, as "+
	"Markdown")

var faultTable table

// enter adds the result of a trial to the line of its fault.
func (t *table) enter(found line, failures, remarks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remarks = append(t.remarks, remarks...)
	for _, f := range failures {
		t.failures = append(t.failures, found.id+" "+found.title+" on "+found.on[0]+": "+f)
	}
	i := slices.IndexFunc(t.lines, func(l *line) bool { return l.id == found.id && l.title == found.title })
	if i < 0 {
		i, t.lines = len(t.lines), append(t.lines, &line{id: found.id, title: found.title})
	}
	t.lines[i].add(found)
}

// add adds the runs of another line.
func (l *line) add(o line) {
	l.on = slices.Compact(slices.Sorted(slices.Values(slices.Concat(l.on, o.on))))
	l.runs += o.runs
	l.failed += o.failed
	l.Accepted += o.Accepted
	l.Lost += o.Lost
	l.Duplicates += o.Duplicates
	l.Bound += o.Bound
	l.Healed = max(l.Healed, o.Healed)
	l.took = max(l.took, o.took)
}

// figures returns the columns with the sums.
func (l *line) figures() string {
	return fmt.Sprintf("%d | %d | %d | %d | %d", l.runs, l.Accepted, l.Lost, l.Duplicates, l.Bound)
}

// print writes the table and the failures below it to the standard output and to the report. It is the last
// output of a run. Without -v and without a report it prints only the failures.
func (t *table) print() error {
	if len(t.lines) == 0 || !testing.Verbose() && *faultReport == "" {
		for _, c := range t.failures {
			fmt.Println("FAILED:", c)
		}
		return nil
	}
	slices.SortFunc(t.lines, func(a, b *line) int {
		return cmp.Or(len(a.id)-len(b.id), strings.Compare(a.id, b.id), strings.Compare(a.title, b.title))
	})
	var b strings.Builder
	b.WriteString("| fault | what | on | runs | accepted | lost | duplicates | bound | healed in | took |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	var all line
	for _, l := range t.lines {
		failed := ""
		if l.failed > 0 {
			failed = fmt.Sprintf("%d FAILED", l.failed)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s %s |\n", l.id, l.title, strings.Join(l.on, ", "),
			l.figures(), l.Healed.Round(100*time.Millisecond), l.took.Round(time.Second), failed)
		all.add(*l)
	}
	fmt.Fprintf(&b, "| | all | | %s | | |\n", all.figures())
	slices.Sort(t.remarks)
	for _, r := range t.remarks {
		b.WriteString("\n" + harness.ListItem(r))
	}
	for _, c := range t.failures {
		b.WriteString("\n" + harness.ListItem("FAILED: "+c))
	}
	fmt.Printf("\nThe fault matrix:\n%s\n", b.String())
	if *faultReport == "" {
		return nil
	}
	head := fmt.Sprintf(reportHead, time.Now().Format(time.DateOnly))
	return os.WriteFile(*faultReport, []byte(head+b.String()+"\n"), 0o644)
}

// reportHead is the head of the report. Its argument is the day of the run.
const reportHead = `# The fault matrix, as measured

` + "`make test-full`" + ` ran these faults on %s and wrote this page.
[guarantees.md](../guide/guarantees.md) explains what each guarantee means.

| column | meaning |
|---|---|
| on | the combinations of database and index that the fault ran on |
| lost | accepted callbacks that were lost; the run fails unless it is zero. F55 damages the database itself: what that removed is in the list, and not counted |
| duplicates | sends that no charged attempt accounts for |
| bound | the most duplicates that the fault may cause |
| healed in | time from the end of the last fault to the end of the last callback, with its waits |
| took | time of the longest run, with the start of its servers |

The list below the table has further figures. There *accepts* and *readyz* count responses by status, and
*degraded by Redis* counts responses of /readyz that reported Redis as degraded.

## Figures

`

// A trial is one run of the program under a fault.
type trial struct {
	*harness.Trial
	// way is the proxy in front of Redis; nil: none.
	way *harness.Proxy
	// own is the client of Redis; nil until the first use.
	own *redis.Client
}

// newTrial creates a trial without a backend.
func newTrial(t *testing.T, name string) *trial {
	return &trial{Trial: harness.NewTrial(t, name)}
}

// trialsAtOnce bounds the tests and trials that run at the same time. They mostly wait.
const trialsAtOnce = 8

var places = semaphore.NewWeighted(trialsAtOnce)

// mostlyWaits makes a test parallel and waits for a place.
func mostlyWaits(t *testing.T) {
	t.Helper()
	t.Parallel()
	harness.Check(t, places.Acquire(t.Context(), 1))
	t.Cleanup(func() { places.Release(1) })
}

// sum adds up a metric over all live processes.
func (tr *trial) sum(name string, parts ...string) (sum int) {
	tr.Helper()
	for _, p := range tr.Alive() {
		sum += p.Count(name, parts...)
	}
	return sum
}

// awaitEmptyIndex waits until Redis has no entry. The verdict checks that too, but reads all evidence again
// on each try.
func (tr *trial) awaitEmptyIndex() {
	tr.Helper()
	if tr.Backend.Redis != "" {
		tr.awaitEntries(0, harness.IndexSettles)
	}
}

// awaitEntries waits until Redis has exactly n entries.
func (tr *trial) awaitEntries(n int, limit time.Duration) {
	tr.Helper()
	tr.Eventually(limit, fmt.Sprintf("the index has %d entries", n), func() error {
		items, err := tr.Backend.ReadIndex(tr.Context())
		if err == nil && len(items) != n {
			err = fmt.Errorf("it has %d", len(items))
		}
		return err
	})
}

// sqlCount reads one number.
func (tr *trial) sqlCount(query string, args ...any) (n int) {
	tr.Helper()
	tr.Check(tr.Database().QueryRowContext(tr.Context(), query, args...).Scan(&n))
	return n
}

// awaitNone waits until the query returns zero.
func (tr *trial) awaitNone(limit time.Duration, what, query string, args ...any) {
	tr.Helper()
	tr.Eventually(limit, what, func() error { return wantZero(tr.sqlCount(query, args...)) })
}

// wantZero returns an error unless the number is zero.
func wantZero(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d are left", n)
}

// texts reads rows with one text column.
func (tr *trial) texts(query string, args ...any) []string {
	tr.Helper()
	return harness.Rows(tr.Trial, func(s *string) []any { return []any{s} }, query, args...)
}

// inSQL returns the ids of all callbacks.
func (tr *trial) inSQL() map[string]bool {
	tr.Helper()
	there := map[string]bool{}
	for _, id := range tr.texts(`SELECT id FROM callbacks`) {
		there["cb_"+id] = true
	}
	return there
}

// lateness returns the lateness of all attempts of the callbacks whose ref matches the LIKE pattern.
func (tr *trial) lateness(like string) (all []time.Duration) {
	tr.Helper()
	for _, ms := range harness.Rows(tr.Trial, func(ms *float64) []any { return []any{ms} },
		`SELECT attempts.lateness FROM attempts JOIN requests ON requests.id = attempts.callback_id
			WHERE requests.ref LIKE $1`, like) {
		all = append(all, time.Duration(ms*float64(time.Millisecond)))
	}
	return all
}

// awaitEnds waits until no callback is open whose ref matches the LIKE pattern.
func (tr *trial) awaitEnds(limit time.Duration, like string) {
	tr.Helper()
	tr.awaitNone(limit, "all of "+like+" have ended", `SELECT count(*) FROM callbacks
		JOIN requests USING (project, id) WHERE ref LIKE $1 AND state = 'scheduled'`, like)
}

// due is a numbered callback that is due after d.
func (tr *trial) due(kind string, i int, d time.Duration) harness.Submission {
	s := tr.Numbered(kind)(i)
	s["delay"] = d.String()
	return s
}

// laneName returns one of so many lanes that every shard of the index has some.
func laneName(i int) string { return fmt.Sprint("lane-", i%clusterLanes) }

// shared is the usual load, spread over lanes. Its timeout is long, because these trials start many servers
// at once.
func (tr *trial) shared(i int) harness.Submission {
	s := tr.Mixed(i)
	s["lane"] = laneName(i)
	s["policy"].(harness.Submission)["timeout"] = "10s"
	return s
}

// finishUnhindered ends a load under a fault that must not delay accepts, because these need no index. The
// median stays below a second even on a busy machine.
func (tr *trial) finishUnhindered(ld *harness.Load) {
	tr.Helper()
	report := ld.Finish()
	if report.Took.P50 > time.Second {
		tr.Errorf("accepts took p50 %s: they do not need the index", report.Took.P50)
	}
}

// ready fails the trial unless the process becomes ready and not degraded. A process that has just started
// may still check its index.
func (tr *trial) ready(p *harness.Process) {
	tr.Helper()
	tr.Eventually(15*time.Second, "the process is ready and not degraded",
		func() error { return healthError(p) })
}

// healthError returns why a process is not ready, or degraded.
func healthError(p *harness.Process) error {
	status, body, err := p.Readyz()
	if err == nil && (status != http.StatusOK || strings.Contains(body, "degraded")) {
		err = fmt.Errorf("/readyz returned %d %s", status, body)
	}
	return err
}

// Helpers for the trial's own Redis.

// redis returns a client of the trial's single Redis, without the proxy.
func (tr *trial) redis() *redis.Client {
	if tr.own == nil {
		tr.own = tr.Backend.RedisClient(tr)
	}
	return tr.own
}

// do sends Redis a command that must succeed.
func (tr *trial) do(args ...any) {
	tr.Helper()
	if err := tr.redis().Do(tr.Context(), args...).Err(); err != nil {
		tr.Fatalf("%v: %v", args, err)
	}
}

// info reads one number of INFO.
func (tr *trial) info(name string) int {
	tr.Helper()
	values, err := tr.redis().InfoMap(tr.Context()).Result()
	tr.Check(err)
	for _, found := range values {
		if value, ok := found[name]; ok {
			n, err := strconv.Atoi(value)
			tr.Check(err)
			return n
		}
	}
	tr.Fatalf("INFO has no %s: %v", name, values)
	return 0
}

// rebuildsMetric counts the index rebuilds of a process.
const rebuildsMetric = "dispatcher_rebuilds_total"

// awaitRebuild waits until the process has rebuilt its index more than `before` times.
func (tr *trial) awaitRebuild(p *harness.Process, before int) {
	tr.Helper()
	tr.AtLeast(time.Minute, "the index is rebuilt", before+1, func() int { return p.Count(rebuildsMetric) })
}

// behindProxy puts a proxy between Redis and the processes that start after it.
func (tr *trial) behindProxy() {
	tr.Helper()
	tr.Backend.RedisBehind = tr.Backend.Redis
	tr.way, tr.Backend.Redis = harness.InFrontOf(tr, tr.Backend.Redis)
}

// restartedWith restarts the trial's Redis with arguments, while it is still empty.
func (tr *trial) restartedWith(args ...string) {
	tr.Helper()
	tr.Backend.Server.Kill()
	tr.Backend.Server.Start(args...)
}

// appended are the settings of a Redis with a durable index.
var appended = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage",
	"0"}

// appendLog returns the append-only file of the server, and its size.
func (tr *trial) appendLog() (string, int64) {
	tr.Helper()
	files, err := filepath.Glob(filepath.Join(tr.Backend.Server.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		tr.Fatalf("no append-only file in %s: %v", tr.Backend.Server.Dir, err)
	}
	file := slices.Max(files)
	info, err := os.Stat(file)
	tr.Check(err)
	return file, info.Size()
}
