// Package faults tests the built binary under faults and under load: the matrix of faults, races against the
// claim, crowds of endpoints, polls, redrives, receivers that misbehave. It runs in make test-full.
//
// Times are asserted loosely: the figures that it prints are for reading, the limits are for machines that do
// other work besides.
package faults

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A fault is one row of the matrix: what is broken, and how a trial shows that nothing is lost by it.
type fault struct {
	id    string // F1 … as docs/guide/guarantees.md lists them
	title string
	// on are the combinations that it runs on. A run on one more combination must be able to fail where the
	// others do not: a fault of the process runs on both ends, which have each database and each index once;
	// a fault between the commit in SQL and the index, on all four; a fault of Redis or of PostgreSQL, on one
	// that has it, unless what heals it reads the other side.
	on  []harness.Combination
	run func(*trial)
	how
}

// how a fault is run.
type how int

const (
	// quick processes take up the work of dead ones after seconds: see harness.QuickTimes.
	quick how = 1 << iota
	// heavy faults load the machine: nothing runs beside them.
	heavy
	// apart faults break PostgreSQL, or bring their own servers: they get no backend and call UseBackend
	// themselves.
	apart
)

func (h how) is(what how) bool { return h&what != 0 }

// matrix is every fault. Each file of faults lists its own.
func matrix() []fault {
	return slices.Concat(killFaults(), leaseFaults(), retentionFaults(), redisFaults(), replicaFaults(),
		sqlFaults(), localFaults(), upgradeFaults(), scaleFaults(), restoreFaults())
}

// Combinations that many faults run on.
var (
	onlySQLite        = []harness.Combination{harness.SQLiteEmbedded}
	onlyPostgres      = []harness.Combination{harness.PostgresOnly}
	onlyPostgresRedis = []harness.Combination{harness.PostgresRedis}
	onlySQLiteRedis   = []harness.Combination{harness.SQLiteRedis}
	// bothWithRedis are for what rebuilds the index: that reads SQL.
	bothWithRedis = []harness.Combination{harness.SQLiteRedis, harness.PostgresRedis}
)

// An entered line is one trial's outcome.
type entered struct {
	fault *fault
	on    string
	harness.TrialResult
	took   time.Duration
	failed bool
}

// A table collects what the trials found.
type table struct {
	mu         sync.Mutex
	entries    []entered
	remarks    []string
	complaints []string
}

var faultReport = flag.String("faults-report", "", "file that the table of the faults is written to, as "+
	"Markdown")

var faultTable table

func (t *table) enter(e entered, failures, remarks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, e)
	t.remarks = append(t.remarks, remarks...)
	for _, f := range failures {
		t.complaints = append(t.complaints, e.fault.id+" "+e.fault.title+" on "+e.on+": "+f)
	}
}

// A summary is one fault's line: the sums over its runs, and the longest times.
type summary struct {
	fault        *fault
	on           []string
	runs, failed int
	harness.TrialResult
	took time.Duration
}

// add adds other runs.
func (s *summary) add(runs int, r harness.TrialResult) {
	s.runs += runs
	s.Accepted += r.Accepted
	s.Lost += r.Lost
	s.Duplicates += r.Duplicates
	s.Bound += r.Bound
	s.Healed = max(s.Healed, r.Healed)
}

// figures are the columns of the sums.
func (s *summary) figures() string {
	return fmt.Sprintf("%d | %d | %d | %d | %d", s.runs, s.Accepted, s.Lost, s.Duplicates, s.Bound)
}

// summaries are the lines, in the order of the faults' numbers.
func (t *table) summaries() (all []*summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := map[string]*summary{}
	for _, e := range t.entries {
		key := e.fault.id + e.fault.title
		s := by[key]
		if s == nil {
			s = &summary{fault: e.fault}
			by[key] = s
			all = append(all, s)
		}
		s.add(1, e.TrialResult)
		s.took = max(s.took, e.took)
		if e.failed {
			s.failed++
		}
		if !slices.Contains(s.on, e.on) {
			s.on = append(s.on, e.on)
		}
	}
	for _, s := range all {
		slices.Sort(s.on)
	}
	slices.SortFunc(all, func(a, b *summary) int {
		return cmp.Or(number(a.fault.id)-number(b.fault.id), strings.Compare(a.fault.title, b.fault.title))
	})
	return all
}

func number(id string) int {
	n, err := strconv.Atoi(strings.TrimLeft(id, "F"))
	if err != nil {
		return 1000 // not a number of the matrix: last
	}
	return n
}

// print writes the table, and below it what went wrong, to the standard output and to the report. It is the
// last thing that a run prints. A run that is not verbose prints only what went wrong.
func (t *table) print() error {
	lines := t.summaries()
	if len(lines) == 0 || !testing.Verbose() && *faultReport == "" {
		for _, c := range t.complaints {
			fmt.Println("FAILED:", c)
		}
		return nil
	}
	var b strings.Builder
	b.WriteString("| fault | what | on | runs | accepted | lost | duplicates | bound | healed in | took |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	total := summary{}
	for _, s := range lines {
		verdict := ""
		if s.failed > 0 {
			verdict = fmt.Sprintf("%d FAILED", s.failed)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s %s |\n", s.fault.id, s.fault.title, strings.Join(s.on, ", "),
			s.figures(), s.Healed.Round(100*time.Millisecond), s.took.Round(time.Second), verdict)
		total.add(s.runs, s.TrialResult)
	}
	fmt.Fprintf(&b, "| | all | | %s | | |\n", total.figures())
	slices.Sort(t.remarks)
	for _, r := range t.remarks {
		fmt.Fprintf(&b, "\n- %s", r)
	}
	for _, c := range t.complaints {
		fmt.Fprintf(&b, "\n- FAILED: %s", c)
	}
	fmt.Printf("\nThe fault matrix:\n%s\n", b.String())
	if *faultReport == "" {
		return nil
	}
	return os.WriteFile(*faultReport, []byte(reportHead+b.String()+"\n"), 0o644)
}

const reportHead = `# The fault matrix, as measured

Written by ` + "`make test-full`" + `. What each guarantee means is in [guarantees.md](../guide/guarantees.md).

- Lost is zero everywhere, or the run fails.
- A duplicate is a send that no charged attempt accounts for. Its bound is what the fault may cost.
- Healed is the time from the end of the last fault until the last callback was terminal, the waits of its own
  tiers included.
- Took is the time of the longest run, with the start of its servers.

`
